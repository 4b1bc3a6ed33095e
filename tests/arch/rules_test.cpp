#include "lamina/arch/rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/arch/tensor_shards.h"

namespace lamina::arch {
namespace {

std::set<std::string> broken_rules(const ArchSpec& spec) {
  std::set<std::string> ids;
  for (const Problem& problem : violations(fill_defaults(spec))) ids.insert(problem.rule);
  return ids;
}

struct Breach {
  const char* preset;
  std::vector<std::string> overrides;
  const char* rule;
};

const std::string kMixer = "layers[0].pattern[0].mixer.";
const std::string kFfn = "layers[0].pattern[0].ffn.";
const std::string kBlock = "layers[0].pattern[0].";

const std::vector<Breach>& breaches() {
  static const std::vector<Breach> list = {
      {"llama-tiny", {"d_model=0"}, "range"},
      {"llama-tiny", {"vocab_size=-5"}, "range"},
      {"llama-tiny", {kMixer + "pattern={\"kind\":\"window\",\"size\":0}"}, "range"},
      {"llama-tiny", {"norm.eps=0"}, "range"},
      {"llama-tiny", {"position.fraction=1.5"}, "range"},
      {"llama-tiny", {"d_model=9000000000000000000"}, "range"},
      {"llama-tiny", {"layers=[]"}, "layers_present"},
      {"llama-tiny", {"layers[0].pattern=[]"}, "layers_present"},
      {"llama-tiny", {"layers[0].repeat=2000000"}, "layers_bounded"},
      {"llama-tiny", {"layers[0].repeat=1073741824", kBlock + "repeat=1073741824"}, "layers_bounded"},
      {"llama-tiny", {kBlock + "mixer=none", kBlock + "ffn=none"}, "block_has_part"},
      {"falcon-tiny", {kBlock + "ffn=none"}, "parallel_needs_both"},
      {"falcon-tiny", {kBlock + "wiring.shared_norm=false", kBlock + "placement=post"}, "parallel_norms"},
      {"llama-tiny", {"norm.group_size=5"}, "norm_groups_divide"},
      {"llama-tiny", {"vocab_size=96", "embedding.padding_token=96"}, "padding_token_known"},
      {"olmo-2-tiny", {kMixer + "qk_norm.norm={\"kind\":\"rms\",\"group_size\":3}"}, "norm_groups_divide"},
      {"llama-tiny", {kMixer + "n_heads=5", kMixer + "n_kv_heads=1"}, "head_dim_known"},
      {"llama-tiny", {kMixer + "n_kv_heads=3"}, "kv_heads_divide"},
      {"deepseek-tiny", {kMixer + "position=alibi"}, "mla_position"},
      {"deepseek-tiny", {kMixer + "kv_lora_rank=4096"}, "mla_latent_smaller"},
      {"transformer-xl-tiny", {kMixer + "sinks=true"}, "sparse_is_plain"},
      {"mamba-tiny", {kMixer + "norm={\"kind\":\"rms\",\"group_size\":3}"}, "norm_groups_divide"},
      {"mamba-tiny", {kMixer + "expand=0.001"}, "inner_width_known"},
      {"mamba2-tiny", {kMixer + "head_dim=7"}, "ssm_heads_divide"},
      {"mamba2-tiny", {kMixer + "groups=3"}, "ssm_heads_divide"},
      {"mamba2-tiny", {kMixer + "in_scales=[1,2]"}, "in_scales_complete"},
      {"mamba-tiny", {kBlock + "mixer={\"kind\":\"rg_lru\",\"blocks\":3}"}, "lru_blocks_divide"},
      {"llama-tiny", {kBlock + "mixer={\"kind\":\"lightning\",\"n_heads\":5}"}, "linear_heads_known"},
      {"llama-tiny",
       {kBlock + "mixer={\"kind\":\"gated_delta\",\"n_heads\":4,\"n_key_heads\":3}"},
       "delta_heads_divide"},
      {"transformer-xl-tiny", {kMixer + "gate=true"}, "gate_is_plain"},
      {"llama-tiny",
       {kBlock + "mixer={\"kind\":\"attention_mamba2\",\"attention\":{\"n_heads\":5}}"},
       "head_dim_known"},
      {"s4d-tiny", {kMixer + "state=7"}, "state_even"},
      {"mamba-tiny", {kMixer + "dt_min=0.5"}, "step_sizes_ordered"},
      {"mamba2-tiny", {kMixer + "dt_low=2", kMixer + "dt_high=1"}, "step_sizes_ordered"},
      {"llama-tiny", {kBlock + "cross={\"n_heads\":4}"}, "cross_has_encoder"},
      {"t5-encoder-decoder-tiny", {kBlock + "cross=null"}, "cross_has_encoder"},
      {"t5-encoder-decoder-tiny", {"encoder." + kBlock + "cross={\"n_heads\":4}"}, "cross_has_encoder"},
      {"bart-tiny", {kBlock + "cross.n_heads=5"}, "cross_heads_fit"},
      {"bart-tiny", {kBlock + "cross.n_kv_heads=3"}, "cross_heads_fit"},
      {"t5-encoder-decoder-tiny", {kBlock + "wiring=parallel"}, "cross_is_serial"},
      {"t5-encoder-decoder-tiny", {"encoder.layers=[]"}, "encoder_present"},
      {"bart-tiny", {"encoder.start_token=96"}, "start_token_known"},
      {"bart-tiny", {"encoder.position={\"kind\":\"learned\",\"length\":8}"}, "encoder_present"},
      {"bart-tiny", {"retrieval={\"at\":{}}"}, "retrieval_alone"},
      {"bert-tiny", {"retrieval={\"at\":{}}"}, "retrieval_alone"},
      {"llama-tiny", {"retrieval={}"}, "retrieval_attended"},
      {"retro-tiny", {"retrieval.at.first=4"}, "retrieval_attended"},
      {"retro-tiny", {"retrieval.layers=[{\"pattern\":[]}]"}, "retrieval_layers_present"},
      {"retro-tiny", {kBlock + "placement=post"}, "retrieval_placement"},
      {"retro-tiny", {kBlock + "placement=sandwich", "norm=layer"}, "retrieval_placement"},
      {"retro-tiny", {"retrieval.at.cross.d_source=32"}, "retrieval_sources"},
      {"retro-tiny", {"retrieval.at.cross.position=alibi"}, "cross_position_known"},
      {"retro-tiny", {"retrieval.at.cross.position={\"kind\":\"rope\",\"rotary_dim\":3}"}, "cross_position_known"},
      {"bart-tiny", {kBlock + "cross.position=rope"}, "cross_position_known"},
      {"retro-tiny", {"retrieval.padding_token=96"}, "retrieval_tokens"},
      {"retro-tiny", {"retrieval.position={\"kind\":\"learned\",\"length\":5}"}, "retrieval_tokens"},
      {"retro-tiny", {"retrieval.neighbours=0"}, "range"},
      {"retro-tiny", {"retrieval.layers[0].pattern[0].mixer=mamba"}, "direction_fits"},
      {"bert-tiny", {kBlock + "mixer=mamba"}, "direction_fits"},
      {"bert-tiny", {"position=transformer_xl"}, "direction_fits"},
      {"bert-tiny", {"position=t5"}, "direction_fits"},
      {"longformer-tiny", {"position=rope"}, "global_projections_plain"},
      {"longformer-tiny", {"causal=true"}, "global_projections_plain"},
      {"bert-tiny", {kBlock + "mixer_norm=false"}, "mixer_norm_placed"},
      {"bert-tiny", {"classifier={\"classes\":2}"}, "classifier_pools"},
      {"bart-tiny", {"pooling={\"of\":\"mean\"}"}, "classifier_pools"},
      {"llama-tiny", {"position.rotary_dim=3"}, "rotary_dim_fits"},
      {"llama-tiny", {"position.rotary_dim=64"}, "rotary_dim_fits"},
      {"llama-tiny", {"position.fraction=0.4"}, "rotary_dim_fits"},
      {"llama-tiny", {"position.scaling={\"kind\":\"dynamic_ntk\",\"factor\":2}"}, "scaling_has_length"},
      {"llama-tiny", {"position.scaling=yarn"}, "scaling_has_length"},
      {"llama-tiny", {"position.scaling=llama3"}, "scaling_has_length"},
      {"gpt-oss-tiny", {"position.scaling.beta_slow=40"}, "scaling_bands_ordered"},
      {"llama-3.1-8b", {"position.scaling.low_freq_factor=5"}, "scaling_bands_ordered"},
      {"phi-3-tiny", {"position.scaling.long_factor=[1,2]"}, "scaling_lists_fit"},
      {"gpt2-tiny", {"position.length=32"}, "learned_length_covers"},
      {"t5-tiny", {"position.buckets=1"}, "buckets_fit"},
      {"t5-tiny", {"position.max_distance=2"}, "buckets_fit"},
      {"t5-tiny",
       {"layers=[{\"pattern\":[{\"mixer\":{\"kind\":\"attention\",\"n_heads\":4}},{\"mixer\":{\"kind\":\"attention\","
        "\"n_heads\":2}}]}]"},
       "shared_tables_agree"},
      {"gpt2-tiny", {kMixer + "position=t5"}, "shared_table_is_alone"},
      {"retro-tiny",
       {"retrieval.position=learned", "retrieval." + kMixer + "position={\"kind\":\"t5\",\"bidirectional\":true}"},
       "shared_table_is_alone"},
      {"llama-tiny",
       {"position={\"kind\":\"alibi\",\"rounding\":\"bf16\"}", kMixer + "soft_cap=2"},
       "rounded_bias_uncapped"},
      {"mixtral-tiny", {kFfn + "top_k=5"}, "top_k_fits"},
      {"deepseek-tiny", {"layers[1].pattern[0].ffn.groups=3"}, "expert_groups_fit"},
      {"deepseek-tiny", {"layers[1].pattern[0].ffn.top_groups=3"}, "expert_groups_fit"},
      {"deepseek-tiny", {"layers[1].pattern[0].ffn.top_k=3"}, "expert_groups_fit"},
      {"deepseek-tiny", {"layers[1].pattern[0].ffn.group_best=3"}, "expert_groups_fit"},
      {"mixtral-tiny", {kFfn + "shared_d_ff=3"}, "shared_width_used"},
      {"mixtral-tiny", {kFfn + "shared_gate=true"}, "shared_gate_used"},
      {"mixtral-tiny", {kFfn + "expert={\"kind\":\"plain\",\"xielu\":{}}"}, "experts_share_no_activation"},
      {"mixtral-tiny", {kFfn + "score=softmax_of_near"}, "near_experts_plain"},
      {"mixtral-tiny",
       {kFfn + "score=softmax_of_near", kFfn + "renormalise=false", kFfn + "selection_bias=true"},
       "near_experts_plain"},
      {"llama-tiny", {kMixer + "pattern={\"kind\":\"bigbird\",\"last_blocks\":1}"}, "last_blocks_seen"},
      {"deepseek-tiny", {kMixer + "pattern={\"kind\":\"bigbird\",\"last_blocks\":1}"}, "last_blocks_seen"},
      {"bert-tiny", {kMixer + "pattern={\"kind\":\"bigbird\",\"draw\":\"numpy\"}"}, "numpy_blocks_published"},
      {"bert-tiny",
       {kMixer + "pattern={\"kind\":\"bigbird\",\"draw\":\"numpy\",\"last_blocks\":1}", kMixer + "sinks=true"},
       "numpy_blocks_published"},
      {"mixtral-tiny",
       {"d_model=1073741824", kMixer + "head_dim=8", kFfn + "experts=1073741824", kFfn + "expert.d_ff=1073741824"},
       "parameters_fit"},
  };
  return list;
}

TEST(Rules, eachFiresWhenItIsBrokenAndOnlyThen) {
  for (const Breach& breach : breaches()) {
    const ArchSpec spec = with_overrides(load_preset(breach.preset), breach.overrides);
    EXPECT_EQ(broken_rules(load_preset(breach.preset)), std::set<std::string>{}) << breach.preset;
    EXPECT_TRUE(broken_rules(spec).count(breach.rule) == 1)
        << breach.rule << " did not fire for " << breach.preset << " with " << breach.overrides.front();
  }
}

TEST(Rules, everyRuleIsBrokenByACase) {
  std::set<std::string> covered;
  for (const Breach& breach : breaches()) covered.insert(breach.rule);
  for (const Rule& rule : rules()) {
    EXPECT_EQ(covered.count(std::string(rule.id)), 1U) << rule.id;
    EXPECT_FALSE(rule.holds.empty() || rule.hint.empty()) << rule.id;
  }
}

TEST(Rules, allViolationsAreReportedAtOnce) {
  const ArchSpec spec = with_overrides(
      load_preset("mixtral-tiny"), {kMixer + "n_kv_heads=3", kFfn + "top_k=9", "norm.eps=-1", "position.rotary_dim=5"});
  try {
    resolve(spec, "mine");
    FAIL();
  } catch (const SpecError& error) {
    const std::string text = error.what();
    for (const char* id : {"kv_heads_divide", "top_k_fits", "range", "rotary_dim_fits"}) {
      EXPECT_NE(text.find(id), std::string::npos) << text;
    }
    EXPECT_NE(text.find("layers[0].pattern[0].mixer.n_kv_heads: 3 does not divide n_heads 4"), std::string::npos)
        << text;
  }
}

TEST(Rules, whatTheModelGotWrongIsNotRepeatedForEveryLayer) {
  const ArchSpec spec = with_overrides(load_preset("gemma-3-tiny"), {"norm.eps=-1", "vocab_size=0"});
  EXPECT_EQ(violations(fill_defaults(spec)).size(), 2U);
}

TEST(Resolve, derivesSizes) {
  const auto attention = [](const ArchSpec& spec) { return std::get<Attention>(spec.layers[0].pattern[0].mixer); };
  ArchSpec spec = resolve(with_overrides(load_preset("llama-7b"), {kFfn + "d_ff=null"}));
  EXPECT_EQ(attention(spec).n_kv_heads, 32);
  EXPECT_EQ(attention(spec).head_dim, 128);
  EXPECT_EQ(attention(spec).v_head_dim, 128);
  EXPECT_DOUBLE_EQ(*attention(spec).scale, 1 / std::sqrt(128.0));
  EXPECT_EQ(std::get<Rope>(*attention(spec).position).rotary_dim, 128);
  EXPECT_EQ(std::get<GatedFfn>(spec.layers[0].pattern[0].ffn).d_ff, 10928) << "8/3 of 4096, up to a multiple of 8";
  spec = resolve(with_overrides(load_preset("llama-7b"), {kFfn + "d_ff=null", kFfn + "multiple_of=256"}));
  EXPECT_EQ(std::get<GatedFfn>(spec.layers[0].pattern[0].ffn).d_ff, 11008);
  spec = resolve(with_overrides(load_preset("llama-7b"), {kFfn + "d_ff=null", "d_model=256", kFfn + "rounding=down"}));
  EXPECT_EQ(std::get<GatedFfn>(spec.layers[0].pattern[0].ffn).d_ff, 680);
  spec = resolve(with_overrides(load_preset("llama-7b"),
                                {kFfn + "d_ff=null", "d_model=256", kFfn + "rounding=down", kFfn + "multiple_of=1"}));
  EXPECT_EQ(std::get<GatedFfn>(spec.layers[0].pattern[0].ffn).d_ff, 682) << "int(2 * 4 * 256 / 3)";
  spec = resolve(load_preset("gpt2"));
  EXPECT_EQ(std::get<PlainFfn>(spec.layers[0].pattern[0].ffn).d_ff, 3072);
  EXPECT_EQ(std::get<LearnedPosition>(spec.position).length, 1024);
  EXPECT_TRUE(std::holds_alternative<NoPosition>(*attention(spec).position)) << "learned positions are the embedding's";
  EXPECT_EQ(spec.final_norm, true);
  EXPECT_EQ(resolve(load_preset("transformer-base")).final_norm, false) << "post-norm ends normed";
  EXPECT_DOUBLE_EQ(std::get<ConstantScale>(resolve(load_preset("gemma-2b")).embedding.scale).value, std::sqrt(2048.0));
  EXPECT_EQ(std::get<Mamba>(resolve(load_preset("mamba-130m")).layers[0].pattern[0].mixer).dt_rank, 48);
  EXPECT_EQ(std::get<Mamba>(resolve(load_preset("mamba-130m")).layers[0].pattern[0].mixer).d_inner, 1536);
  EXPECT_EQ(std::get<Rope>(*attention(resolve(load_preset("phi-2"))).position).rotary_dim, 32);
}

TEST(Resolve, aLayerTakesTheModelsPositionUnlessItHasItsOwn) {
  const ArchSpec spec = resolve(load_preset("gemma-3-4b"));
  const auto rope = [](const Block& block) { return std::get<Rope>(*std::get<Attention>(block.mixer).position); };
  EXPECT_EQ(rope(spec.layers[0].pattern[0]).theta, 1e4);
  EXPECT_TRUE(std::holds_alternative<NoScaling>(rope(spec.layers[0].pattern[0]).scaling));
  EXPECT_EQ(rope(spec.layers[0].pattern[1]).theta, 1e6);
  EXPECT_EQ(std::get<LinearScaling>(rope(spec.layers[0].pattern[1]).scaling).factor, 8);
}

TEST(TensorParallel, LayersWithOneTableMustDivideTheirHeadsAlike) {
  const auto problems = [](int second_kv_heads) {
    const std::string layer =
        R"({"pattern": [{"mixer": {"kind": "attention", "n_heads": 6, "head_dim": 8, "n_kv_heads": )";
    const std::string layers = "layers=[" + layer + "3}}]}, " + layer + std::to_string(second_kv_heads) + "}}]}]";
    const ArchSpec spec = resolve(with_overrides(load_preset("llama-tiny"), {R"(position={"kind":"t5"})", layers}));
    return tensor_parallel_problems(spec, 2);
  };
  EXPECT_TRUE(problems(3).empty());
  const std::vector<Problem> found = problems(6);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].path, "layers[1].pattern[0].mixer.n_kv_heads");
}

TEST(Resolve, yarnsMagnitudes) {
  const ArchSpec spec = resolve(load_preset("deepseek-v3"));
  const Mla& mla = std::get<Mla>(spec.layers[0].pattern[0].mixer);
  const double m = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(*mla.scale, m * m / std::sqrt(192.0));
  EXPECT_DOUBLE_EQ(*std::get<YarnScaling>(std::get<Rope>(*mla.position).scaling).attention_factor, 1.0);
  const ArchSpec oss = resolve(load_preset("gpt-oss-20b"));
  const auto& attention = std::get<Attention>(oss.layers[0].pattern[0].mixer);
  EXPECT_DOUBLE_EQ(*std::get<YarnScaling>(std::get<Rope>(*attention.position).scaling).attention_factor,
                   0.1 * std::log(32.0) + 1);
}

}  // namespace
}  // namespace lamina::arch
