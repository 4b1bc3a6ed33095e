#include <gtest/gtest.h>

#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "support/hf_folder.h"

namespace lamina::testing {
namespace {

/// Random weights for an architecture.
io::Checkpoint random_checkpoint(const arch::ArchSpec& spec, DType dtype = DType::f32) {
  io::Checkpoint checkpoint{arch::resolve(spec), {}, "", {}};
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const io::WeightSlot& slot : io::weight_slots(checkpoint.spec)) {
    std::vector<float> values(static_cast<size_t>(slot.shape.numel()));
    for (float& value : values) value = normal(random);
    checkpoint.tensors.push_back({slot.name, Tensor::from(values, slot.shape, Device::cpu(1)).to(dtype)});
  }
  return checkpoint;
}

struct Case {
  const char* preset;
  const char* family;  ///< the family that must be chosen, by structure alone
};

class HfPreset : public ::testing::TestWithParam<Case> {};

/// The structure finds its family, and what is written means the same and holds the same numbers when read.
TEST_P(HfPreset, IsWrittenAndReadBack) {
  const TemporaryFolder temporary;
  const io::Checkpoint checkpoint = random_checkpoint(arch::load_preset(GetParam().preset));
  EXPECT_EQ(io::write_hf(temporary / "out", checkpoint), GetParam().family);
  io::Checkpoint again = io::read_hf(temporary / "out", Device::cpu(1));
  if (again.family.starts_with("mamba") || again.family == "bloom") again.spec.context = checkpoint.spec.context;
  for (const arch::Difference& row : arch::diff(io::hf::canonical(checkpoint.spec), io::hf::canonical(again.spec))) {
    ADD_FAILURE() << row.path << ": " << row.a << ", read back " << row.b;
  }
  EXPECT_EQ(contents_of(checkpoint.tensors), contents_of(again.tensors));
}

constexpr Case kCases[] = {
    {"gpt2-tiny", "gpt2"},
    {"llama-tiny", "llama"},
    {"mistral-tiny", "mistral"},
    {"mixtral-tiny", "mixtral"},
    {"qwen2-tiny", "qwen2"},
    {"qwen3-tiny", "qwen3"},
    {"gemma-tiny", "gemma"},
    {"gemma-2-tiny", "gemma2"},
    {"gemma-3-tiny", "gemma3_text"},
    {"olmo-tiny", "olmo"},
    {"olmo-2-tiny", "olmo2"},
    {"command-r-tiny", "cohere"},
    {"bloom-tiny", "bloom"},
    {"command-a-tiny", "cohere2"},
    {"falcon-tiny", "falcon"},
    {"gpt-j-tiny", "gptj"},
    {"falcon-rw-tiny", "falcon"},
    {"gpt-neox-tiny", "gpt_neox"},
    {"opt-tiny", "opt"},
    {"starcoder-tiny", "gpt_bigcode"},
    {"starcoder2-tiny", "starcoder2"},
    {"phi-tiny", "phi"},
    {"phi-3-tiny", "mistral"},
    {"stablelm-tiny", "stablelm"},
    {"mpt-tiny", "mpt"},
    {"granite-tiny", "granite"},
    {"nemotron-tiny", "nemotron"},
    {"glm-tiny", "glm"},
    {"smollm3-tiny", "smollm3"},
    {"deepseek-tiny", "deepseek_v3"},
    {"gpt-oss-tiny", "gpt_oss"},
    {"mamba-tiny", "mamba"},
    {"mamba2-tiny", "mamba2"},
    {"qwen3-moe-tiny", "qwen3_moe"},
    {"hunyuan-tiny", "hunyuan_v1_dense"},
    {"qwen2-moe-tiny", "qwen2_moe"},
    {"phi-moe-tiny", "phimoe"},
    {"apertus-tiny", "apertus"},
    {"llama-4-tiny", "llama4_text"},
    {"bigbird-tiny", "big_bird"},
    {"bert-tiny", "bert"},
    {"roberta-tiny", "roberta"},
    {"distilbert-tiny", "distilbert"},
    {"modernbert-tiny", "modernbert"},
    {"longformer-tiny", "longformer"},
    {"jamba-tiny", "jamba"},
    {"falcon-h1-tiny", "falcon_h1"},
    {"lfm2-tiny", "lfm2"},
    {"recurrent-gemma-tiny", "recurrent_gemma"},
    {"minimax-tiny", "minimax"},
    {"rwkv-4-tiny", "rwkv"},
    {"qwen3-next-tiny", "qwen3_next"},
};
INSTANTIATE_TEST_SUITE_P(All, HfPreset, ::testing::ValuesIn(kCases), [](const auto& test) {
  std::string name = test.param.preset;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

/// Options of families that no preset and no golden has.
TEST(HfWrite, RarerOptions) {
  const char* const configs[] = {
      R"({"model_type": "codegen", "vocab_size": 96, "n_embd": 32, "n_head": 4, "n_layer": 2, "rotary_dim": 4})",
      R"({"model_type": "gptj", "vocab_size": 96, "n_embd": 32, "n_head": 4, "n_layer": 2, "rotary_dim": 4, "tie_word_embeddings": true})",
      R"({"model_type": "opt", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "ffn_dim": 40, "do_layer_norm_before": false, "word_embed_proj_dim": 16, "max_position_embeddings": 10})",
      R"({"model_type": "opt", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "enable_bias": false, "layer_norm_elementwise_affine": false, "_remove_final_layer_norm": true, "max_position_embeddings": 10})",
      R"({"model_type": "phi", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "intermediate_size": 40, "qk_layernorm": true, "num_key_value_heads": 2})",
      R"({"model_type": "phi3", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "intermediate_size": 40, "max_position_embeddings": 64, "original_max_position_embeddings": 16,
          "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4]}})",
      R"({"model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "intermediate_size": 24,
          "mlp_only_layers": [0, 2], "norm_topk_prob": true, "use_sliding_window": true, "sliding_window": 4})",
      R"({"model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 3,
          "q_lora_rank": null, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 6,
          "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0,
          "moe_intermediate_size": 8, "attention_bias": true, "rope_interleave": false, "max_position_embeddings": 160,
          "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4, "mscale": 1.0, "mscale_all_dim": 0.7}})",
      R"({"model_type": "bloom", "vocab_size": 96, "hidden_size": 32, "n_head": 4, "n_layer": 2,
          "apply_residual_connection_post_layernorm": true})",
      R"({"model_type": "falcon", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "num_kv_heads": 2, "new_decoder_architecture": true, "num_ln_in_parallel_attn": 1, "bias": true})",
      R"({"model_type": "falcon", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "alibi": true, "parallel_attn": false, "multi_query": false, "bias": true})",
      R"({"model_type": "gpt_neox", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "intermediate_size": 40, "use_parallel_residual": false, "attention_bias": false, "rotary_pct": 0.5, "rotary_emb_base": 500})",
      R"({"model_type": "gpt2", "vocab_size": 96, "n_embd": 32, "n_head": 4, "n_layer": 3, "n_inner": 50,
          "scale_attn_by_inverse_layer_idx": true, "activation_function": "relu", "n_positions": 9})",
      R"({"model_type": "gpt_bigcode", "vocab_size": 96, "n_embd": 32, "n_head": 4, "n_layer": 2, "multi_query": false, "n_positions": 9})",
      R"({"model_type": "mamba2", "vocab_size": 96, "hidden_size": 32, "num_heads": 8, "head_dim": 8, "n_groups": 2,
          "num_hidden_layers": 2, "state_size": 4, "use_bias": true, "use_conv_bias": false, "time_step_limit": [0.01, 0.2]})",
      R"({"model_type": "gemma3_text", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "head_dim": 8,
          "num_key_value_heads": 2, "num_hidden_layers": 3, "intermediate_size": 40, "sliding_window": 4,
          "sliding_window_pattern": 3, "query_pre_attn_scalar": 10, "rope_scaling": {"rope_type": "linear", "factor": 8.0}})",
      R"({"model_type": "mpt", "vocab_size": 96, "d_model": 32, "n_heads": 4, "n_layers": 2,
          "attn_config": {"clip_qkv": 8.0, "softmax_scale": 0.3}})",
      R"({"model_type": "granite", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "intermediate_size": 40, "logits_scaling": 3.0, "embedding_multiplier": 12, "attention_multiplier": 0.1,
          "residual_multiplier": 0.22, "mlp_bias": true, "attention_bias": true})",
      R"({"model_type": "smollm3", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3,
          "intermediate_size": 40, "no_rope_layers": [1, 0, 1], "use_sliding_window": true, "sliding_window": 4})",
      R"({"model_type": "stablelm", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 2, "intermediate_size": 40, "use_qkv_bias": true, "qk_layernorm": true})",
      R"({"model_type": "cohere", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "intermediate_size": 40, "use_qk_norm": true, "num_key_value_heads": 2, "attention_bias": true})",
      R"({"model_type": "nemotron", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "head_dim": 16,
          "num_hidden_layers": 2, "intermediate_size": 40, "partial_rotary_factor": 0.25, "mlp_bias": true})",
      R"({"model_type": "starcoder2", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 2, "intermediate_size": 40, "use_bias": false, "sliding_window": 6, "tie_word_embeddings": false})",
      R"({"model_type": "jamba", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 5, "intermediate_size": 40, "num_experts": 1, "attn_layer_period": 3, "attn_layer_offset": 1,
          "mamba_d_state": 4, "mamba_proj_bias": true, "mamba_conv_bias": false})",
      R"({"model_type": "jamba", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 3, "intermediate_size": 40, "num_experts": 2, "expert_layer_period": 2, "expert_layer_offset": 0,
          "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 4})",
      R"({"model_type": "granitemoehybrid", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3,
          "num_local_experts": 0, "shared_intermediate_size": 24, "position_embedding_type": "rope", "rope_theta": 500.0,
          "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 8, "mamba_d_state": 4, "mamba_n_groups": 2,
          "residual_multiplier": 0.22, "logits_scaling": 3.0, "time_step_limit": [0.01, 0.2]})",
      R"({"model_type": "falcon_h1", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 2, "head_dim": 12, "intermediate_size": 40, "mamba_d_ssm": 48, "mamba_n_heads": 6, "mamba_d_state": 4,
          "mamba_n_groups": 2, "mamba_rms_norm": true, "mamba_norm_before_gate": false, "key_multiplier": 0.13,
          "mlp_multipliers": [0.7, 0.3], "ssm_multipliers": [0.1, 0.2, 0.3, 0.4, 0.5], "attention_out_multiplier": 0.4,
          "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.2, "lm_head_multiplier": 0.01, "embedding_multiplier": 5.65})",
      R"({"model_type": "lfm2", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 3, "block_ff_dim": 60, "block_multiple_of": 16, "full_attn_idxs": [1], "conv_bias": true,
          "conv_L_cache": 4, "theta": 500.0, "tie_embedding": false})",
      R"({"model_type": "hunyuan_v1_dense", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4,
          "num_hidden_layers": 2, "intermediate_size": 40, "head_dim": 8, "attention_bias": true,
          "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1,
                           "mscale": 1.0, "mscale_all_dim": 1.0}})",
      R"({"model_type": "qwen2_moe", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
          "shared_expert_intermediate_size": 16, "intermediate_size": 24, "decoder_sparse_step": 2, "qkv_bias": false,
          "norm_topk_prob": true, "use_sliding_window": true, "sliding_window": 4, "max_window_layers": 3})",
      R"({"model_type": "phimoe", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 2, "num_local_experts": 4, "intermediate_size": 16, "router_jitter_noise": 0.05,
          "sliding_window": 6, "max_position_embeddings": 64, "original_max_position_embeddings": 16,
          "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4],
                           "short_mscale": 1.25, "long_mscale": 1.25, "original_max_position_embeddings": 16}})",
      R"({"model_type": "llama4_text", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 8, "num_hidden_layers": 4, "intermediate_size": 16, "intermediate_size_mlp": 24, "num_local_experts": 4,
          "interleave_moe_layer_step": 2, "no_rope_layers": [0, 1, 1, 0], "attention_chunk_size": 4, "use_qk_norm": false,
          "attn_temperature_tuning": false})",
      R"({"model_type": "llama4_text", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 8, "num_hidden_layers": 4, "intermediate_size": 16, "intermediate_size_mlp": 24, "num_local_experts": 4,
          "moe_layers": [0, 3], "num_experts_per_tok": 2, "attn_scale": 0.3, "floor_scale": 5, "attention_chunk_size": 4,
          "layer_types": ["full_attention", "chunked_attention", "chunked_attention", "chunked_attention"]})",
      R"({"model_type": "big_bird", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "intermediate_size": 40, "attention_type": "original_full", "use_bias": false, "rescale_embeddings": true})",
      R"({"model_type": "recurrent_gemma", "vocab_size": 96, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 1,
          "num_hidden_layers": 5, "intermediate_size": 48, "lru_width": 24, "block_types": ["recurrent", "attention"],
          "attention_window_size": 6, "attention_bias": true, "logits_soft_cap": 20.0, "conv1d_width": 2})",
  };
  for (const char* config : configs) {
    SCOPED_TRACE(config);
    const TemporaryFolder temporary;
    write_folder(temporary / "in", config);
    const io::Checkpoint first = io::read_hf(temporary / "in", Device::cpu(1));
    ASSERT_EQ(error_of([&] { EXPECT_EQ(io::write_hf(temporary / "out", first), first.family); }), "");
    EXPECT_EQ(contents_of(temporary / "in/model.safetensors"), contents_of(temporary / "out/model.safetensors"));
    const io::Checkpoint again = io::read_hf(temporary / "out", Device::cpu(1));
    EXPECT_TRUE(io::hf::canonical(first.spec) == io::hf::canonical(again.spec));
  }
}

TEST(HfWrite, TokensComeBackAsTheyWere) {
  const TemporaryFolder temporary;
  for (const char* const pad : {"null", "7", "-1", "200"}) {
    SCOPED_TRACE(pad);
    write_folder(temporary / "in",
                 str(R"({"model_type": "olmo", "vocab_size": 96, "hidden_size": 32, "pad_token_id": )", pad,
                     R"(, "bos_token_id": 3, "eos_token_id": [4, 5], "num_attention_heads": 4,
                                       "num_hidden_layers": 1, "intermediate_size": 40})"));
    const io::Checkpoint first = io::read_hf(temporary / "in", Device::cpu(1));
    io::HfWriteOptions options;
    options.replace = true;
    io::write_hf(temporary / "out", first, options);
    const io::Checkpoint again = io::read_hf(temporary / "out", Device::cpu(1));
    EXPECT_EQ(first.tokens, again.tokens);
    EXPECT_EQ(first.spec.embedding.padding_token, again.spec.embedding.padding_token);
  }
  // Where the two disagree, the architecture is right.
  io::Checkpoint other = random_checkpoint(arch::load_preset("llama-tiny"));
  other.spec.embedding.padding_token = 2;
  other.tokens["pad_token_id"] = "5";
  io::write_hf(temporary / "other", other);
  EXPECT_EQ(io::read_hf(temporary / "other", Device::cpu(1)).spec.embedding.padding_token, 2);
}

TEST(HfWrite, AFreeMixIsRefusedWithTheNearestFamily) {
  const TemporaryFolder temporary;
  const auto mixed = random_checkpoint(
      arch::with_overrides(arch::load_preset("llama-tiny"),
                           {"layers[0].pattern[0].mixer.soft_cap=20", "layers[0].pattern[0].mixer.sinks=true"}));
  const std::string message = error_of([&] { io::write_hf(temporary / "out", mixed); });
  for (const char* part : {"nearest is llama", "soft_cap: 20", "sinks", "--to lamina"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  EXPECT_FALSE(std::filesystem::exists(temporary / "out"));
  for (const char* preset : {"grok-tiny", "hybrid-tiny", "t5-tiny", "transformer-xl-tiny", "s4d-tiny", "palm-tiny"}) {
    const std::string refused =
        error_of([&] { io::write_hf(temporary / "out", random_checkpoint(arch::load_preset(preset))); });
    EXPECT_NE(refused.find("the nearest is"), std::string::npos) << preset << ": " << refused;
  }
}

TEST(HfWrite, TheUserMayNameAFamily) {
  const TemporaryFolder temporary;
  const io::Checkpoint llama = random_checkpoint(arch::load_preset("llama-tiny"));
  io::HfWriteOptions options;
  options.family = "mistral";
  EXPECT_EQ(io::write_hf(temporary / "mistral", llama, options), "mistral");
  EXPECT_EQ(contents_of(llama.tensors), contents_of(io::read_hf(temporary / "mistral", Device::cpu(1)).tensors));
  options.family = "gpt2";
  const std::string message = error_of([&] { io::write_hf(temporary / "gpt2", llama, options); });
  EXPECT_NE(message.find("gpt2 cannot hold"), std::string::npos) << message;
  options.family = "gtp2";
  EXPECT_NE(error_of([&] { io::write_hf(temporary / "x", llama, options); }).find("did you mean gpt2?"),
            std::string::npos);
}

TEST(HfWrite, ShardsAreFoundByTheirIndex) {
  const TemporaryFolder temporary;
  const io::Checkpoint checkpoint = random_checkpoint(arch::load_preset("mixtral-tiny"));
  io::HfWriteOptions options;
  options.max_shard_bytes = 40000;
  int64_t last = 0;
  int64_t all = 0;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
  };
  io::write_hf(temporary / "out", checkpoint, options);
  EXPECT_EQ(last, all);
  EXPECT_FALSE(std::filesystem::exists(temporary / "out/model.safetensors"));
  ASSERT_TRUE(std::filesystem::exists(temporary / "out/model.safetensors.index.json"));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(temporary / "out")) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    EXPECT_LE(entry.file_size(), 50000U);
  }
  EXPECT_GE(files, 5);
  EXPECT_EQ(contents_of(checkpoint.tensors), contents_of(io::read_hf(temporary / "out", Device::cpu(1)).tensors));
}

TEST(HfWrite, TypesAreKeptOrConverted) {
  const TemporaryFolder temporary;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const io::Checkpoint checkpoint = random_checkpoint(arch::load_preset("gpt2-tiny"), dtype);
    const std::string folder = temporary / str("out_", dtype);
    io::write_hf(folder, checkpoint);
    EXPECT_EQ(contents_of(checkpoint.tensors), contents_of(io::read_hf(folder, Device::cpu(1)).tensors));
    io::HfReadOptions as_f32;
    as_f32.dtype = DType::f32;
    EXPECT_EQ(contents_of(io::converted(checkpoint, DType::f32).tensors),
              contents_of(io::read_hf(folder, Device::cpu(1), as_f32).tensors));
  }
  const io::Checkpoint full = random_checkpoint(arch::load_preset("gpt2-tiny"));
  io::HfWriteOptions options;
  options.dtype = DType::bf16;
  io::write_hf(temporary / "half", full, options);
  EXPECT_NE(read_all(temporary / "half/config.json").find("bfloat16"), std::string::npos);
  EXPECT_EQ(contents_of(io::converted(full, DType::bf16).tensors),
            contents_of(io::read_hf(temporary / "half", Device::cpu(1)).tensors));
}

TEST(HfWrite, NothingIsOverwrittenUnasked) {
  const TemporaryFolder temporary;
  const io::Checkpoint llama = random_checkpoint(arch::load_preset("llama-tiny"));
  io::write_hf(temporary / "out", llama);
  EXPECT_NE(error_of([&] { io::write_hf(temporary / "out", llama); }).find("already exists"), std::string::npos);
  EXPECT_NE(error_of([&] { io::write_native(temporary / "out", llama); }).find("already exists"), std::string::npos);
  io::HfWriteOptions options;
  options.replace = true;
  const io::Checkpoint gpt2 = random_checkpoint(arch::load_preset("gpt2-tiny"));
  EXPECT_EQ(io::write_hf(temporary / "out", gpt2, options), "gpt2");
  EXPECT_EQ(contents_of(gpt2.tensors), contents_of(io::read_hf(temporary / "out", Device::cpu(1)).tensors));
  EXPECT_NE(error_of([&] { io::write_hf(temporary / "no/such/place", llama); }).find("create that first"),
            std::string::npos);
  // No unfinished folder remains.
  for (const auto& entry : std::filesystem::directory_iterator(temporary / "")) {
    EXPECT_EQ(entry.path().filename(), "out");
  }
}

}  // namespace
}  // namespace lamina::testing
