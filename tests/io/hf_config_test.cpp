#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "support/hf_folder.h"

namespace lamina::testing {
namespace {

using Json = nlohmann::json;

arch::ArchSpec read(const Json& config) { return io::read_hf_config(config.dump(), "config.json"); }

const Json kLlama = {
    {"model_type", "llama"},   {"hidden_size", 32}, {"num_attention_heads", 4}, {"num_hidden_layers", 2},
    {"intermediate_size", 56}, {"vocab_size", 96},  {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};

Json with(Json config, const Json& more) {
  config.update(more);
  return config;
}

const arch::Attention& attention(const arch::ArchSpec& spec, size_t layer = 0) {
  return std::get<arch::Attention>(arch::layer_blocks(spec).at(layer)->mixer);
}
const arch::Rope& rope(const arch::ArchSpec& spec, size_t layer = 0) {
  return std::get<arch::Rope>(*attention(spec, layer).position);
}

void expect_refused(const Json& config, const std::vector<std::string>& parts) {
  const std::string message = error_of([&] { read(config); });
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

TEST(HfConfig, OldAndNewSpellingOfRopeMeanTheSame) {
  const Json yarn = {{"factor", 4.0}, {"original_max_position_embeddings", 16}, {"beta_fast", 16}};
  const Json old_type = with(yarn, {{"type", "yarn"}});
  const Json new_type = with(yarn, {{"rope_type", "yarn"}});
  const auto old_spelling = read(with(kLlama, {{"rope_theta", 500.0}, {"rope_scaling", old_type}}));
  const auto middle = read(with(kLlama, {{"rope_theta", 500.0}, {"rope_scaling", new_type}}));
  const auto new_spelling = read(with(kLlama, {{"rope_parameters", with(new_type, {{"rope_theta", 500.0}})}}));
  EXPECT_EQ(old_spelling, middle);
  EXPECT_EQ(old_spelling, new_spelling);
  EXPECT_EQ(rope(new_spelling).theta, 500.0);
  EXPECT_EQ(std::get<arch::YarnScaling>(rope(new_spelling).scaling).beta_fast, 16.0);
  EXPECT_EQ(read(with(kLlama, {{"rope_scaling", nullptr}})), read(kLlama));
  EXPECT_EQ(rope(read(with(kLlama, {{"rope_theta", 5.0}, {"rope_parameters", {{"rope_theta", 6.0}}}}))).theta, 6.0);
}

TEST(HfConfig, FamiliesThatRotateWholeHeadsSaySo) {
  expect_refused(with(kLlama, {{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor", "whole heads"});
  expect_refused(with(kLlama, {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}), {"whole heads"});
  EXPECT_EQ(read(with(kLlama, {{"partial_rotary_factor", 1.0}})), read(kLlama));
  const Json glm = with(kLlama, {{"model_type", "glm"}, {"head_dim", 8}});
  EXPECT_EQ(rope(read(glm)).rotary_dim, 4);
  EXPECT_EQ(rope(read(with(glm, {{"rope_parameters", {{"partial_rotary_factor", 0.25}}}}))).rotary_dim, 2);
}

TEST(HfConfig, TheLengthOfTrainingStandsInFilesWhereItHasNoEffect) {
  for (const char* const type : {"linear", "dynamic"}) {
    const Json scaling = {{"rope_type", type}, {"factor", 2.0}};
    EXPECT_EQ(read(with(kLlama, {{"rope_scaling", scaling}})),
              read(with(kLlama, {{"rope_scaling", with(scaling, {{"original_max_position_embeddings", 16}})}})));
  }
}

TEST(HfConfig, LayersOfBothKindsInBothSpellings) {
  const Json gemma = {
      {"model_type", "gemma3_text"}, {"hidden_size", 32},       {"num_attention_heads", 4}, {"head_dim", 8},
      {"num_hidden_layers", 6},      {"intermediate_size", 56}, {"vocab_size", 96},         {"sliding_window", 8},
      {"num_key_value_heads", 2}};
  const Json linear = {{"rope_type", "linear"}, {"factor", 8.0}};
  const auto old_spelling = read(with(
      gemma,
      {{"rope_theta", 7e5}, {"rope_local_base_freq", 2e4}, {"rope_scaling", linear}, {"sliding_window_pattern", 3}}));
  const auto new_spelling =
      read(with(gemma, {{"rope_parameters",
                         {{"full_attention", with(linear, {{"rope_theta", 7e5}})},
                          {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}}},
                        {"layer_types",
                         {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
                          "sliding_attention", "full_attention"}}}));
  EXPECT_EQ(old_spelling, new_spelling);
  EXPECT_EQ(rope(new_spelling, 0).theta, 2e4);
  EXPECT_EQ(rope(new_spelling, 2).theta, 7e5);
  EXPECT_EQ(std::get<arch::LinearScaling>(rope(new_spelling, 5).scaling).factor, 8.0);
  EXPECT_TRUE(std::holds_alternative<arch::NoScaling>(rope(new_spelling, 4).scaling));
  expect_refused(with(gemma, {{"rope_parameters", {{"rope_theta", 5.0}}}}), {"rope_parameters.rope_theta"});
}

TEST(HfConfig, TheLengthOfTrainingIsWrittenDown) {
  const auto dynamic = read(with(kLlama, {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}));
  EXPECT_EQ(std::get<arch::DynamicNtkScaling>(rope(dynamic).scaling).original_length, 64);
  const auto yarn = read(with(kLlama, {{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}}}));
  EXPECT_EQ(std::get<arch::YarnScaling>(rope(yarn).scaling).original_length, 64);
  const Json factors = {1.0, 2.0, 3.0, 4.0};
  const Json phi =
      with(kLlama, {{"model_type", "phi3"},
                    {"original_max_position_embeddings", 32},
                    {"rope_scaling", {{"type", "su"}, {"short_factor", factors}, {"long_factor", factors}}}});
  const arch::ArchSpec spec = read(phi);
  const auto& longrope = std::get<arch::LongRopeScaling>(rope(spec).scaling);
  EXPECT_EQ(longrope.original_length, 32);
  EXPECT_DOUBLE_EQ(*longrope.attention_factor, std::sqrt(1.0 + std::log(2.0) / std::log(32.0)));
  expect_refused(with(phi, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}), {"rope_type", "longrope"});
}

TEST(HfConfig, MissingKeysMeanWhatTheFamilySays) {
  const auto llama = read({{"model_type", "llama"}});
  EXPECT_EQ(llama.d_model, 4096);
  EXPECT_EQ(*attention(llama).n_kv_heads, 32);
  EXPECT_EQ(std::get<arch::RmsNorm>(llama.norm).eps, 1e-6);
  const auto mistral = read({{"model_type", "mistral"}});
  EXPECT_EQ(*attention(mistral).n_kv_heads, 8);
  EXPECT_EQ(std::get<arch::WindowPattern>(attention(mistral).pattern).size, 4096);
  EXPECT_TRUE(read({{"model_type", "gemma"}}).head.tied);
  const auto oss = read({{"model_type", "gpt_oss"}});
  EXPECT_EQ(oss, arch::resolve([&] {
              arch::ArchSpec preset = arch::load_preset("gpt-oss-120b");
              preset.about.clear();
              for (arch::Block& block : preset.layers[0].pattern) std::get<arch::Moe>(block.ffn).balance_loss = 0.001;
              return preset;
            }()));
  EXPECT_EQ(*attention(read({{"model_type", "qwen3"}})).head_dim, 128);
  EXPECT_EQ(*rope(read({{"model_type", "phi"}})).rotary_dim, 32);
  EXPECT_EQ(*rope(read({{"model_type", "stablelm"}})).rotary_dim, 20);
}

TEST(HfConfig, UnknownKeysAreErrorsThatNameTheNearest) {
  expect_refused(with(kLlama, {{"rms_norm_epss", 1e-5}}),
                 {"config.json", "rms_norm_epss", "did you mean rms_norm_eps?"});
  expect_refused(with(kLlama, {{"wibble", 1}}), {"wibble", "may change what the model computes"});
  expect_refused(with(kLlama, {{"quantization_config", {{"bits", 4}}}}), {"quantization_config", "unquantised"});
  expect_refused(with(kLlama, {{"hidden_act", "gelu_nwe"}}), {"hidden_act", "did you mean gelu_new?"});
  expect_refused(with(kLlama, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"fcator", 3.0}}}}), {"fcator"});
  expect_refused(with(kLlama, {{"rope_scaling", {{"type", "wavy"}}}}), {"wavy", "yarn"});
  for (const char* type : {"yarn", "linear", "dynamic", "llama3"}) {
    expect_refused(with(kLlama, {{"rope_scaling", {{"rope_type", type}}}}), {"config.json", "factor", "missing"});
    expect_refused(with(kLlama, {{"rope_scaling", {{"rope_type", type}, {"factor", nullptr}}}}), {"factor", "missing"});
  }
  expect_refused(with(kLlama, {{"model_type", "lama"}}), {"lama", "did you mean llama?"});
  expect_refused({{"hidden_size", 4}}, {"model_type"});
}

TEST(HfConfig, WrongValuesAreErrors) {
  expect_refused(with(kLlama, {{"hidden_size", "wide"}}), {"hidden_size", "wide", "whole number"});
  expect_refused(with(kLlama, {{"hidden_size", nullptr}}), {"hidden_size"});
  expect_refused(with(kLlama, {{"num_hidden_layers", 1e12}}), {"num_hidden_layers", "10000"});
  expect_refused(with(kLlama, {{"num_hidden_layers", -1}}), {"num_hidden_layers"});
  expect_refused(with(kLlama, {{"num_key_value_heads", 3}}), {"n_kv_heads"});
  expect_refused(with(kLlama, {{"attention_bias", 1}}), {"attention_bias", "true or false"});
  expect_refused({{"model_type", "gpt2"}, {"n_embd", 4}, {"hidden_size", 8}}, {"n_embd", "keep one"});
  const std::string whole = kLlama.dump();
  for (size_t cut = 0; cut < whole.size(); cut += 7) {
    EXPECT_NE(error_of([&] { io::read_hf_config(whole.substr(0, cut), "config.json"); }), "") << cut;
  }
}

TEST(HfConfig, WhatReadersOfTheFamilyIgnoreOrLackIsRefused) {
  const Json mpt = {{"model_type", "mpt"}};
  expect_refused(with(mpt, {{"attn_config", {{"alibi", false}}}}), {"attn_config", "alibi"});
  expect_refused(with(mpt, {{"attn_config", {{"qk_lnn", true}}}}), {"qk_lnn", "qk_ln"});
  expect_refused(with(mpt, {{"no_bias", false}}), {"no_bias"});
  const Json falcon = {{"model_type", "falcon"}};
  expect_refused(with(falcon, {{"new_decoder_architecture", true}, {"parallel_attn", false}}), {"parallel_attn"});
  expect_refused(with(falcon, {{"num_ln_in_parallel_attn", 2}}), {"num_ln_in_parallel_attn"});
  expect_refused({{"model_type", "gpt2"}, {"add_cross_attention", true}}, {"add_cross_attention"});
  expect_refused({{"model_type", "gemma2"}, {"use_bidirectional_attention", true}}, {"use_bidirectional_attention"});
}

TEST(HfConfig, ScalingsThatOneFamilyHas) {
  const Json alpha = {{"type", "dynamic"}, {"alpha", 50.0}, {"factor", 1.0}};
  const auto hunyuan = read(with(kLlama, {{"model_type", "hunyuan_v1_dense"}, {"rope_scaling", alpha}}));
  EXPECT_EQ(std::get<arch::NtkScaling>(rope(hunyuan).scaling).factor, 50.0);
  expect_refused(with(kLlama, {{"rope_scaling", alpha}}), {"alpha"});
  Json longrope = {{"type", "longrope"},
                   {"short_factor", {1, 1, 1, 1}},
                   {"long_factor", {1, 2, 3, 4}},
                   {"short_mscale", 1.25},
                   {"long_mscale", 1.25}};
  const Json phimoe = with(kLlama, {{"model_type", "phimoe"}});
  const auto spec = read(with(phimoe, {{"rope_scaling", longrope}}));
  EXPECT_EQ(std::get<arch::LongRopeScaling>(rope(spec).scaling).attention_factor, 1.25);
  longrope["long_mscale"] = 1.5;
  expect_refused(with(phimoe, {{"rope_scaling", longrope}}), {"long_mscale", "1.5 differs from short_mscale 1.25"});
}

TEST(HfConfig, LayersWithExpertsChunksAndWithoutRope) {
  const auto spec = read({{"model_type", "llama4_text"},
                          {"num_hidden_layers", 4},
                          {"interleave_moe_layer_step", 2},
                          {"no_rope_layer_interval", 2},
                          {"attention_chunk_size", 16}});
  const auto blocks = arch::layer_blocks(spec);
  EXPECT_TRUE(std::holds_alternative<arch::GatedFfn>(blocks[0]->ffn));
  EXPECT_TRUE(std::get<arch::Moe>(blocks[1]->ffn).weigh_inputs);
  EXPECT_EQ(std::get<arch::ChunkPattern>(attention(spec, 0).pattern).size, 16);
  EXPECT_TRUE(std::get<arch::PerHeadQkNorm>(attention(spec, 0).qk_norm).after_rope);
  EXPECT_FALSE(attention(spec, 0).temperature);
  EXPECT_TRUE(std::holds_alternative<arch::FullPattern>(attention(spec, 1).pattern));
  EXPECT_TRUE(std::holds_alternative<arch::NoPosition>(*attention(spec, 1).position));
  EXPECT_TRUE(std::holds_alternative<arch::NoQkNorm>(attention(spec, 1).qk_norm));
  EXPECT_EQ(attention(spec, 1).temperature->interval, 8192);
  const Json llama4 = {{"model_type", "llama4_text"}, {"num_hidden_layers", 1}};
  expect_refused(with(llama4, {{"layer_types", {"sliding_attention"}}}), {"layer_types", "chunked_attention"});
  expect_refused(with(llama4, {{"layer_types", Json::array()}}), {"layer_types", "1 layers"});
  expect_refused({{"model_type", "apertus"}, {"hidden_act", "silu"}}, {"hidden_act", "xielu"});
  expect_refused({{"model_type", "big_bird"}, {"attention_type", "etc"}}, {"attention_type", "block_sparse"});
}

TEST(HfConfig, Windows) {
  const Json qwen = with(kLlama, {{"model_type", "qwen2"}, {"num_hidden_layers", 4}, {"max_window_layers", 3}});
  const auto windows = [](const arch::ArchSpec& spec) {
    std::string text;
    for (const arch::Block* block : arch::layer_blocks(spec)) {
      const auto& a = std::get<arch::Attention>(block->mixer);
      text += std::holds_alternative<arch::WindowPattern>(a.pattern) ? 'w' : 'f';
    }
    return text;
  };
  EXPECT_EQ(windows(read(qwen)), "ffff");
  EXPECT_EQ(windows(read(with(qwen, {{"use_sliding_window", true}, {"sliding_window", 8}}))), "fffw");
  EXPECT_EQ(windows(read({{"model_type", "gemma2"}, {"num_hidden_layers", 5}})), "wfwfw");
  EXPECT_EQ(windows(read({{"model_type", "cohere2"}, {"num_hidden_layers", 5}})), "wwwfw");
  expect_refused(
      with(qwen, {{"layer_types", {"full_attention", "sliding_attention", "full_attention", "full_attention"}}}),
      {"layer_types", "sliding_window"});
  expect_refused(with(qwen, {{"layer_types", {"full_attention"}}}), {"layer_types", "4 layers"});
  const auto smol = read({{"model_type", "smollm3"}, {"num_hidden_layers", 8}});
  EXPECT_TRUE(std::holds_alternative<arch::NoPosition>(*attention(smol, 3).position));
  EXPECT_TRUE(std::holds_alternative<arch::Rope>(*attention(smol, 4).position));
}

TEST(HfConfig, ScoresOfEachFamily) {
  const auto gpt2 = read({{"model_type", "gpt2"}, {"scale_attn_by_inverse_layer_idx", true}});
  EXPECT_DOUBLE_EQ(*attention(gpt2, 0).scale, 0.125);
  EXPECT_DOUBLE_EQ(*attention(gpt2, 3).scale, 0.125 / 4);
  EXPECT_EQ(*attention(read({{"model_type", "gpt2"}, {"scale_attn_weights", false}})).scale, 1.0);
  const auto rw = read({{"model_type", "falcon"},
                        {"hidden_size", 32},
                        {"num_attention_heads", 2},
                        {"alibi", true},
                        {"parallel_attn", false},
                        {"multi_query", false},
                        {"bias", true}});
  EXPECT_DOUBLE_EQ(std::get<arch::Alibi>(*attention(rw).position).slope_scale, 0.25);
  EXPECT_EQ(std::get<arch::Alibi>(*attention(rw).position).rounding, arch::BiasRounding::bf16);
  EXPECT_EQ(*attention(rw).n_kv_heads, 2);
  EXPECT_TRUE(std::holds_alternative<arch::SerialWiring>(arch::layer_blocks(rw)[0]->wiring));
  const auto granite = read({{"model_type", "granite"}, {"logits_scaling", 8.0}, {"attention_multiplier", 0.5}});
  EXPECT_EQ(std::get<arch::ConstantScale>(granite.head.scale).value, 0.125);
  EXPECT_EQ(*attention(granite).scale, 0.5);
}

TEST(HfConfig, ThePaddingTokenOfFamiliesThatDoNotTrainIt) {
  const auto token = [](const Json& config) { return read(config).embedding.padding_token; };
  const Json olmo = with(kLlama, {{"model_type", "olmo"}});
  EXPECT_EQ(token(kLlama), std::nullopt);
  EXPECT_EQ(token(with(kLlama, {{"pad_token_id", 7}})), 7);
  EXPECT_EQ(token(olmo), 1);
  EXPECT_EQ(token(with(olmo, {{"pad_token_id", nullptr}})), std::nullopt);
  EXPECT_EQ(token(with(kLlama, {{"pad_token_id", -1}})), 95);
  EXPECT_EQ(token(with(kLlama, {{"pad_token_id", 96}})), std::nullopt);
  EXPECT_EQ(token({{"model_type", "gpt2"}, {"pad_token_id", 7}}), std::nullopt);
  EXPECT_EQ(token({{"model_type", "mamba"}}), std::nullopt);
  expect_refused(with(kLlama, {{"pad_token_id", "seven"}}), {"pad_token_id", "seven"});
}

TEST(HfConfig, InfinityInEitherSpelling) {
  const std::string start = R"({"model_type": "mamba2", "time_step_limit": [0.5, )";
  for (const char* const infinity : {"Infinity", R"({"__float__": "Infinity"})"}) {
    const auto spec = io::read_hf_config(start + infinity + "]}", "config.json");
    const auto& mixer = std::get<arch::Mamba2>(arch::layer_blocks(spec)[0]->mixer);
    EXPECT_EQ(mixer.dt_low, 0.5);
    EXPECT_FALSE(mixer.dt_high);
  }
  EXPECT_EQ(*std::get<arch::Mamba2>(arch::layer_blocks(io::read_hf_config(start + "2.5]}", "c"))[0]->mixer).dt_high,
            2.5);
}

}  // namespace
}  // namespace lamina::testing
