#include "lamina/arch/edit.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "support/error_of.h"

namespace lamina::arch {
namespace {

ArchSpec changed(const std::string& preset, const std::vector<std::string>& assignments) {
  return with_overrides(load_preset(preset), assignments);
}

std::string message_of(const std::string& preset, const std::vector<std::string>& assignments) {
  return testing::error_of([&] { changed(preset, assignments); });
}

const Block& first_block(const ArchSpec& spec) { return spec.layers[0].pattern[0]; }

TEST(Overrides, reachEveryDepth) {
  const ArchSpec spec =
      changed("gemma-2-tiny", {"position.theta=1e6", "layers[0].pattern[1].ffn.d_ff=512", "about=mine",
                               "layers[*].pattern[*].mixer.n_kv_heads=1", "head.tied=false"});
  EXPECT_EQ(std::get<Rope>(spec.position).theta, 1e6);
  EXPECT_EQ(std::get<GatedFfn>(spec.layers[0].pattern[1].ffn).d_ff, 512);
  EXPECT_EQ(std::get<GatedFfn>(spec.layers[0].pattern[0].ffn).d_ff, 56);
  for (const Block& block : spec.layers[0].pattern) EXPECT_EQ(std::get<Attention>(block.mixer).n_kv_heads, 1);
  EXPECT_EQ(spec.about, "mine");
  EXPECT_FALSE(spec.head.tied);
}

TEST(Overrides, switchVariantsAndKeepWhatBothHave) {
  const ArchSpec spec =
      changed("llama-tiny", {"norm.kind=layer", "position.kind=alibi", "layers[0].pattern[0].ffn.kind=plain",
                             "layers[0].pattern[0].mixer.kind=mamba"});
  EXPECT_EQ(std::get<LayerNorm>(spec.norm).eps, 1e-6) << "eps is known to both kinds";
  EXPECT_TRUE(std::holds_alternative<Alibi>(spec.position));
  EXPECT_EQ(std::get<PlainFfn>(first_block(spec).ffn).d_ff, 56);
  EXPECT_TRUE(std::holds_alternative<Mamba>(first_block(spec).mixer));
  EXPECT_NO_THROW(resolve(spec));
}

TEST(Overrides, takeWholeObjectsAndNull) {
  const ArchSpec spec = changed("llama-tiny", {R"(layers[0].pattern[0].ffn={"kind": "moe", "experts": 4})",
                                               "layers[0].pattern[0].mixer.n_kv_heads=null", "norm=layer_no_params"});
  EXPECT_EQ(std::get<Moe>(first_block(spec).ffn).experts, 4);
  EXPECT_FALSE(std::get<Attention>(first_block(spec).mixer).n_kv_heads.has_value());
  EXPECT_TRUE(std::holds_alternative<LayerNormNoParams>(spec.norm));
}

TEST(Overrides, setOptionsThatWereUnset) {
  const ArchSpec spec = changed(
      "llama-tiny", {"embedding.norm.kind=rms", "embedding.norm.eps=0.5", "layers[0].pattern[0].mixer.bias.k=true"});
  EXPECT_EQ(std::get<RmsNorm>(*spec.embedding.norm).eps, 0.5);
  EXPECT_EQ(std::get<Attention>(first_block(spec).mixer).bias, (AttentionBias{false, true, false, false}));
  EXPECT_NE(message_of("llama-tiny", {"embedding.norm.eps=1"}).find("set embedding.norm.kind first"),
            std::string::npos);
}

TEST(Overrides, errorsNameTheNearestKeyOrTheKindThatHasIt) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"d_mode=3", "did you mean d_model?"},
      {"position.tehta=3", "did you mean theta?"},
      {"position.max_bias=3", "set position.kind=alibi first"},
      {"position.kind=rotary", "one of none, learned, sinusoidal, rope"},
      {"layers[7].repeat=2", "has 1 elements"},
      {"layers.repeat=2", "layers is a list"},
      {"d_model.x=2", "single value"},
      {"position[0]=2", "is not a list"},
      {"d_model", "expected path=value"},
      {"=3", "expected path=value"},
      {"layers[0.repeat=3", "[ without ]"},
      {"layers[-1].repeat=3", "is not an index"},
      {"head..tied=3", "key is missing"},
      {"zzz.tied=3", "has no \"zzz\""},
      {".d_model=3", "key is missing"},
      {"d_model=wide", "expected a whole number"},
      {"head.tied=yes", "expected true or false"},
      {"layers[0].pattern[0].mixer.dt_rank=3", "set layers[0].pattern[0].mixer.kind=mamba first"},
  };
  for (const auto& [assignment, words] : cases) {
    const std::string message = message_of("llama-tiny", {assignment});
    EXPECT_NE(message.find(words), std::string::npos) << assignment << " gave: " << message;
  }
  EXPECT_NE(message_of("llama-tiny", {"d_mode=3", "positin=3", "d_model=x"}).find("3 problems"), std::string::npos);
}

TEST(Diff, namesWhatDiffersByPath) {
  EXPECT_TRUE(diff(load_preset("gpt2"), load_preset("gpt2")).empty());
  const std::vector<Difference> rows = diff(load_preset("llama-7b"), load_preset("llama-2-7b"));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].path, "about");
  EXPECT_EQ(rows[1].path, "context");
  EXPECT_EQ(rows[1].a, "2048");
  EXPECT_EQ(rows[1].b, "4096");
  EXPECT_EQ(rows[2].path, "norm.eps");
}

TEST(Diff, oneSideMayLackTheValue) {
  const ArchSpec one = load_preset("llama-tiny");
  ArchSpec two = one;
  two.layers.push_back(two.layers[0]);
  two.position = Alibi{};
  const std::vector<Difference> rows = diff(one, two);
  const auto find = [&rows](const std::string& path) {
    for (const Difference& row : rows) {
      if (row.path == path) return row;
    }
    return Difference{};
  };
  EXPECT_EQ(find("layers[1]").a, "");
  EXPECT_NE(find("layers[1]").b, "");
  EXPECT_EQ(find("position.kind").a, "\"rope\"");
  EXPECT_EQ(find("position.theta").b, "");
  EXPECT_EQ(find("position.max_bias").a, "");
}

}  // namespace
}  // namespace lamina::arch
