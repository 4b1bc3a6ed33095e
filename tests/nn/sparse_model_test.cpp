// Whole models with blocks other than attention plus dense feed-forward: MoE, MLA, state spaces, segment memory.
#include <gtest/gtest.h>

#include "lamina/arch/weights.h"
#include "lamina/autograd/tape.h"
#include "nn/model_support.h"

namespace lamina::testing {
namespace {

constexpr int64_t kSparseTokens = 12;
const Device kDevice = Device::cpu(2);  // NOLINT(cert-err58-cpp): a test's constant

std::vector<NamedSpec> sparse_specs() {
  std::vector<NamedSpec> found;
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (!is_dense(spec) && generates_alone(spec)) found.push_back({name, std::move(spec)});
  }
  const std::string experts = "layers[0].pattern[0].ffn={\"kind\":\"moe\",\"experts\":4,\"top_k\":2,";
  found.push_back(changed("llama-tiny", {"position.kind=transformer_xl"}));
  found.push_back(changed("llama-tiny", {"position.kind=transformer_xl", "position.shared_bias=false",
                                         "layers[0].pattern[0].mixer.qk_norm.kind=per_head"}));
  found.push_back(changed("mamba-tiny", {"layers[0].pattern[0].mixer.kind=s4d"}));
  found.push_back(changed("gpt2-tiny", {experts + "\"expert\":{\"kind\":\"plain\",\"bias\":true}}"}));
  found.push_back(changed("llama-tiny", {experts + "\"capacity_factor\":1,\"balance_loss\":0.01,\"z_loss\":0.001}"}));
  return found;
}

/// In f64, so that rounding does not change the choice of experts.
std::unique_ptr<nn::Model> model_of(const NamedSpec& named) {
  auto model = std::make_unique<nn::Model>(named.spec, kDevice, nn::ModelOptions{.dtype = DType::f64});
  scramble(*model);
  return model;
}

TEST(SparseModel, DecodingInAnyPiecesEqualsTheWholeForward) {
  for (const NamedSpec& named : sparse_specs()) {
    const auto model = model_of(named);
    const Tensor ids = ids_tensor(random_ids(2 * kSparseTokens, named.spec.vocab_size), 2, kDevice);
    const Tensor whole = model->logits(ids);
    for (const std::vector<int64_t>& pieces :
         std::vector<std::vector<int64_t>>{{5, 1, 1, 1, 1, 1, 1, 1}, {1, 4, 4, 3}, {kSparseTokens}}) {
      nn::ModelCache cache = model->make_cache(2, kSparseTokens);
      int64_t at = 0;
      for (const int64_t size : pieces) {
        const Tensor ours = model->cached_logits(ids.slice(1, at, size).contiguous(), cache);
        expect_same_model(*model, ours, whole.slice(1, at, size), str(named.name, " at ", at));
        at += size;
      }
    }
  }
}

TEST(SparseModel, RaggedRowsEqualEachRowAlone) {
  for (const NamedSpec& named : sparse_specs()) {
    const auto model = model_of(named);
    const auto first = random_ids(7, named.spec.vocab_size, 5);
    const auto second = random_ids(4, named.spec.vocab_size, 6);
    nn::ModelCache cache = model->make_cache(2, kSparseTokens);
    std::vector<int64_t> fed(first.begin(), first.begin() + 6);
    fed.insert(fed.end(), {second[0], second[1], second[2], 0, 0, 0});
    model->cached_logits(ids_tensor(fed, 2, kDevice), cache, {.counts = {6, 3}});
    const Tensor next = model->cached_logits(ids_tensor({first[6], second[3]}, 2, kDevice), cache);
    expect_same_model(*model, next.slice(0, 0, 1), model->logits(ids_tensor(first, 1, kDevice)).slice(1, 6, 1),
                      named.name);
    expect_same_model(*model, next.slice(0, 1, 1), model->logits(ids_tensor(second, 1, kDevice)).slice(1, 3, 1),
                      named.name);
  }
}

TEST(SparseModel, CheckpointedLayersGiveTheSameGradients) {
  for (const NamedSpec& named : sparse_specs()) {
    const auto model = model_of(named);
    const Tensor ids = ids_tensor(random_ids(2 * kSparseTokens, named.spec.vocab_size), 2, kDevice);
    const Tensor targets = ids_tensor(random_ids(2 * kSparseTokens, named.spec.vocab_size, 9), 2, kDevice);
    std::vector<nn::StateDict> found;
    for (const bool kept : {true, false}) {
      Tape tape;
      for (Tensor& parameter : model->parameters()) tape.watch(parameter);
      nn::RunOptions run;
      run.training = true;
      if (!kept) run.checkpoint = &tape;
      tape.backward(model->loss(ids, targets, {}, run).total);
      found.push_back(model->named_gradients(tape));
    }
    for (size_t i = 0; i < found[0].size(); ++i) {
      const auto& [name, gradient] = found[0][i];
      ASSERT_TRUE(gradient.defined() && found[1][i].tensor.defined()) << named.name << " " << name;
      const auto values = gradient.to_vector<double>();
      EXPECT_EQ(values, found[1][i].tensor.to_vector<double>()) << named.name << " " << name;
      EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](double v) { return v != 0.0; }))
          << named.name << " " << name << " gets no gradient";
    }
  }
}

/// 16-bit models run, with and without cache, and their logits stay close to f32. MoE logits only have to be finite,
/// because rounding may change the choice of experts.
TEST(SparseModel, RunsInSixteenBits) {
  for (const NamedSpec& named : sparse_specs()) {
    const auto wide = model_of(named);
    const Tensor ids = ids_tensor(random_ids(kSparseTokens, named.spec.vocab_size), 1, kDevice);
    const auto truth = wide->logits(ids).to_vector<double>();
    const auto blocks = arch::layer_blocks(named.spec);
    const bool chooses = std::any_of(blocks.begin(), blocks.end(), [](const arch::Block* block) {
      return std::holds_alternative<arch::Moe>(block->ffn);
    });
    const double largest = largest_magnitude(truth);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      nn::Model model(named.spec, kDevice, {.dtype = dtype});
      model.load_state_dict(wide->state_dict());
      nn::ModelCache cache = model.make_cache(1, kSparseTokens);
      std::vector<double> cached = model.cached_logits(ids.slice(1, 0, 5).contiguous(), cache).to_vector<double>();
      for (int64_t at = 5; at < kSparseTokens; ++at) {
        const auto next = model.cached_logits(ids.slice(1, at, 1).contiguous(), cache).to_vector<double>();
        cached.insert(cached.end(), next.begin(), next.end());
      }
      const std::vector<double> whole = model.logits(ids).to_vector<double>();
      for (const double value : whole) ASSERT_TRUE(std::isfinite(value)) << named.name << " " << dtype;
      for (const double value : cached) ASSERT_TRUE(std::isfinite(value)) << named.name << " cached " << dtype;
      const double bound = chooses ? std::numeric_limits<double>::max() : 0.1 * largest;
      EXPECT_LE(largest_error(whole, truth), bound) << named.name << " " << dtype;
      EXPECT_LE(largest_error(cached, truth), bound) << named.name << " cached " << dtype;
    }
  }
}

/// The model's buffers report choices and drops of the experts.
TEST(SparseModel, ChoicesAndDropsOfEveryLayerAreReachable) {
  const NamedSpec named = sparse_specs().back();
  const auto model = model_of(named);
  const Tensor ids = ids_tensor(random_ids(2 * kSparseTokens, named.spec.vocab_size), 2, kDevice);
  nn::RunOptions run;
  run.training = true;
  model->logits(ids, run);
  size_t layers = 0;
  int64_t dropped = 0;
  for (const auto& [name, buffer] : model->named_buffers()) {
    if (name.ends_with(".ffn.dropped")) dropped += buffer.to_vector<int64_t>()[0];
    if (!name.ends_with(".ffn.chosen")) continue;
    ++layers;
    int64_t sum = 0;
    for (const int64_t count : buffer.to_vector<int64_t>()) sum += count;
    EXPECT_EQ(sum, 2 * 2 * kSparseTokens) << name;
  }
  EXPECT_EQ(layers, arch::layer_blocks(named.spec).size());
  EXPECT_GT(dropped, 0);
}

/// Building on the meta device allocates nothing, whatever the size; parameter counts match the architecture.
TEST(SparseModel, BuildsOnMeta) {
  for (const char* name : {"deepseek-v3", "mixtral-8x7b", "mamba-2.8b", "mamba2-2.7b", "gpt-oss-120b", "hybrid-2b",
                           "minimax-text-01", "rwkv-4-7b", "qwen3-next-80b-a3b"}) {
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    const nn::Model model(spec, Device::meta());
    int64_t ours = 0;
    for (const auto& [weight, tensor] : model.state_dict()) ours += tensor.numel();
    int64_t listed = 0;
    const auto add = [&](const std::vector<arch::Weight>& weights) {
      for (const arch::Weight& weight : weights) {
        int64_t numel = 1;
        for (const int64_t extent : weight.shape) numel *= extent;
        listed += numel;
      }
    };
    add(arch::outer_weights(spec));
    for (const arch::Block* block : arch::layer_blocks(spec)) add(arch::block_weights(spec, *block));
    EXPECT_EQ(ours, listed) << name;
  }
}

}  // namespace
}  // namespace lamina::testing
