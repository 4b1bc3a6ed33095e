// Tensor and sequence parallel against one device in f64: loss, norm and every named gradient of presets and of random
// architectures.
#include "lamina/arch/layers.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "parallel/first_update.h"
#include "parallel/random_architecture.h"

namespace lamina::testing {
namespace {

void expect_equal(const std::vector<std::string>& changes, int dp, int tp, bool sequence) {
  std::vector<std::string> parallel = changes;
  parallel.insert(parallel.end(),
                  {str("layout.dp=", dp), str("layout.tp=", tp), str("layout.sequence=", sequence ? "true" : "false")});
  std::string what = str("dp ", dp, " tp ", tp, sequence ? " sequence" : "");
  for (const std::string& change : changes) what += " " + change;
  compare(small_recipe(parallel), single_device(small_recipe(changes)), what);
}
TEST(TensorParallel, LossNormAndEveryGradientEqualOneDeviceInF64) {
  const std::vector<std::vector<std::string>> cases{
      {"architecture=llama-tiny"},
      {"architecture=gpt2-tiny", "dropout.residual=0.2", "dropout.embedding=0.1"},
      {"architecture=gemma-2-tiny", "z_loss=0.01", "label_smoothing=0.1", "checkpointing=true"},
      {"architecture=qwen3-tiny", "layout.micro_batch=5"},
      {"architecture=deepseek-tiny", "layout.order=ordered"},
      {"architecture=mixtral-tiny"},
      {"architecture=gpt-neox-tiny"},
      {"architecture=t5-tiny"},
      {"architecture=gpt-oss-tiny"},
      {"architecture=opt-tiny"},
      {"architecture=starcoder-tiny"},
      {"architecture=bloom-tiny"},
      {"architecture=mamba-tiny", "architecture.layers[0].pattern[0].mixer.bias=true", "checkpointing=true"},
      {"architecture=mamba-tiny", "data.order=packed", "architecture.layers[0].pattern[0].mixer.norm=rms"},
      {"architecture=mamba2-tiny", "architecture.layers[0].pattern[0].mixer.norm_groups=4"},
      {"architecture=mamba2-tiny", "architecture.layers[0].pattern[0].mixer.norm=none",
       "architecture.layers[0].pattern[0].mixer.groups=2", "architecture.layers[0].pattern[0].mixer.bias=true"},
      {"architecture=mamba2-tiny", "architecture.layers[0].pattern[0].mixer.norm_groups=4",
       "architecture.layers[0].pattern[0].mixer.groups=4"},
      {"architecture=falcon-h1-tiny", "architecture.position={\"kind\":\"t5\",\"buckets\":8,\"max_distance\":12}"},
  };
  bool sequence = false;
  for (const auto& changes : cases) {
    for (const auto& [dp, tp] : std::vector<std::pair<int, int>>{{1, 2}, {1, 4}, {2, 2}}) {
      const train::Recipe single = small_recipe(changes);
      if (dp > 1 && (has_experts(single.architecture) || train::is_packed(single))) continue;
      expect_equal(changes, dp, tp, sequence = !sequence);
    }
  }
}

TEST(TensorParallel, EveryPresetIsComputedOrRefused) {
  int computed = 0;
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (!arch::is_causal(spec) || !arch::tensor_parallel_problems(spec, 2).empty()) continue;
    expect_equal({"architecture=" + name, "accumulation=1", "batch=3"}, 1, 2, computed % 2 == 0);
    ++computed;
  }
  EXPECT_GE(computed, 20);
}

TEST(TensorParallel, RandomArchitecturesAndLayoutsEqualOneDevice) {
  int compared = 0;
  for (uint64_t seed = 0; compared < 24 && seed < 200; ++seed) {
    Draw draw(seed);
    const int tp = static_cast<int>(2 + draw.below(4));
    const int dp = static_cast<int>(1 + draw.below(2));
    train::Recipe recipe = small_recipe({"batch=3", "length=7", "dropout.residual=0.1"});
    try {
      recipe.architecture = arch::resolve(random_architecture(draw, tp), "random");
    } catch (const arch::SpecError&) {
      continue;  // a combination that no model has
    }
    if (!arch::tensor_parallel_problems(recipe.architecture, tp).empty()) continue;
    ++compared;
    const First expected = single_device(recipe);
    recipe.layout.tp = tp;
    recipe.layout.dp = has_experts(recipe.architecture) ? 1 : dp;
    recipe.layout.sequence = draw.coin();
    recipe.layout.zero = 0;
    if (draw.coin()) recipe.layout.recompute = train::Recompute::selective;
    compare(recipe, expected, str("seed ", seed, " tp ", tp, " dp ", dp, recipe.layout.sequence ? " sequence" : ""));
  }
  EXPECT_EQ(compared, 24);
}

}  // namespace
}  // namespace lamina::testing
