// Row layouts of packed tensors in each family, written out from how transformers reads them.
#include <gtest/gtest.h>

#include "support/hf_folder.h"

namespace lamina::testing {
namespace {

using Column = std::vector<float>;

/// Reads a folder of the configuration in which tensor `name` has `shape` and is numbered row by row: row i begins with
/// i · columns.
io::Checkpoint read_numbered(const std::string& config, const std::string& name, const Shape& shape) {
  const TemporaryFolder temporary;
  write_folder(temporary / "in", config, {{name, numbered(shape)}});
  EXPECT_EQ(io::SafetensorsFile::open(temporary / "in/model.safetensors", Device::cpu(1)).shape(name), shape);
  const io::Checkpoint checkpoint = io::read_hf(temporary / "in", Device::cpu(1));
  // And back, to the same bytes.
  io::write_hf(temporary / "out", checkpoint);
  EXPECT_EQ(contents_of(temporary / "in/model.safetensors"), contents_of(temporary / "out/model.safetensors"));
  return checkpoint;
}

Column column(const io::Checkpoint& checkpoint, const std::string& name) {
  return first_column(tensor_of(checkpoint, "layers.0." + name));
}

/// Conv1D: [in, out], columns are queries, keys, values in turn.
TEST(HfLayout, Gpt2IsTransposed) {
  const auto read = read_numbered(
      R"({"model_type": "gpt2", "vocab_size": 5, "n_embd": 2, "n_head": 1, "n_layer": 1, "n_positions": 3})",
      "transformer.h.0.attn.c_attn.weight", {2, 6});
  EXPECT_EQ(tensor_of(read, "layers.0.mixer.q.weight").to_vector<float>(), (Column{0, 6, 1, 7}));
  EXPECT_EQ(tensor_of(read, "layers.0.mixer.k.weight").to_vector<float>(), (Column{2, 8, 3, 9}));
  EXPECT_EQ(tensor_of(read, "layers.0.mixer.v.weight").to_vector<float>(), (Column{4, 10, 5, 11}));
}

/// view(heads, 3, head_dim): each head's query, key and value follow each other.
TEST(HfLayout, BloomInterleavesHeads) {
  const auto read =
      read_numbered(R"({"model_type": "bloom", "vocab_size": 5, "hidden_size": 4, "n_head": 2, "n_layer": 1})",
                    "transformer.h.0.self_attention.query_key_value.weight", {12, 4});
  EXPECT_EQ(column(read, "mixer.q.weight"), (Column{0, 4, 24, 28}));
  EXPECT_EQ(column(read, "mixer.k.weight"), (Column{8, 12, 32, 36}));
  EXPECT_EQ(column(read, "mixer.v.weight"), (Column{16, 20, 40, 44}));
}

TEST(HfLayout, BloomInterleavesBiasesToo) {
  const auto read =
      read_numbered(R"({"model_type": "bloom", "vocab_size": 5, "hidden_size": 4, "n_head": 2, "n_layer": 1})",
                    "transformer.h.0.self_attention.query_key_value.bias", {12});
  EXPECT_EQ(tensor_of(read, "layers.0.mixer.q.bias").to_vector<float>(), (Column{0, 1, 6, 7}));
  EXPECT_EQ(tensor_of(read, "layers.0.mixer.v.bias").to_vector<float>(), (Column{4, 5, 10, 11}));
}

/// view(heads, 3 · head_dim) and chunk.
TEST(HfLayout, GptNeoxInterleavesHeads) {
  const auto read = read_numbered(
      R"({"model_type": "gpt_neox", "vocab_size": 5, "hidden_size": 4, "num_attention_heads": 2,
          "num_hidden_layers": 1, "intermediate_size": 3, "rotary_pct": 1.0})",
      "gpt_neox.layers.0.attention.query_key_value.weight", {12, 4});
  EXPECT_EQ(column(read, "mixer.q.weight"), (Column{0, 4, 24, 28}));
  EXPECT_EQ(column(read, "mixer.v.weight"), (Column{16, 20, 40, 44}));
}

/// view(kv_heads, heads / kv_heads + 2, head_dim): a group's queries, then its key, then its value.
TEST(HfLayout, FalconGroupsByKeyHead) {
  const auto read = read_numbered(
      R"({"model_type": "falcon", "vocab_size": 5, "hidden_size": 8, "num_attention_heads": 4, "num_kv_heads": 2,
          "new_decoder_architecture": true, "num_hidden_layers": 1})",
      "transformer.h.0.self_attention.query_key_value.weight", {16, 8});
  EXPECT_EQ(column(read, "mixer.q.weight"), (Column{0, 8, 16, 24, 64, 72, 80, 88}));
  EXPECT_EQ(column(read, "mixer.k.weight"), (Column{32, 40, 96, 104}));
  EXPECT_EQ(column(read, "mixer.v.weight"), (Column{48, 56, 112, 120}));
}

/// One key head: all queries, the key, the value.
TEST(HfLayout, FalconWithOneKeyHead) {
  const auto read = read_numbered(
      R"({"model_type": "falcon", "vocab_size": 5, "hidden_size": 4, "num_attention_heads": 2,
          "num_hidden_layers": 1})",
      "transformer.h.0.self_attention.query_key_value.weight", {8, 4});
  EXPECT_EQ(column(read, "mixer.q.weight"), (Column{0, 4, 8, 12}));
  EXPECT_EQ(column(read, "mixer.k.weight"), (Column{16, 20}));
  EXPECT_EQ(column(read, "mixer.v.weight"), (Column{24, 28}));
}

TEST(HfLayout, BigcodeWithManyKeyHeadsInterleaves) {
  const auto read = read_numbered(
      R"({"model_type": "gpt_bigcode", "vocab_size": 5, "n_embd": 4, "n_head": 2, "n_layer": 1, "n_positions": 3,
          "multi_query": false})",
      "transformer.h.0.attn.c_attn.weight", {12, 4});
  EXPECT_EQ(column(read, "mixer.q.weight"), (Column{0, 4, 24, 28}));
  EXPECT_EQ(column(read, "mixer.k.weight"), (Column{8, 12, 32, 36}));
}

/// Four slices, each with a quarter of the queries, then of the values, then of the keys.
TEST(HfLayout, CodegenHasFourSlicesOfQueryValueKey) {
  const TemporaryFolder temporary;
  const std::string name = "transformer.h.0.attn.qkv_proj.weight";
  write_folder(temporary / "in",
               R"({"model_type": "codegen", "vocab_size": 5, "n_embd": 8, "n_head": 4, "n_layer": 1, "n_positions": 3,
                   "rotary_dim": 2})",
               {{name, numbered({24, 8})}});
  const io::Checkpoint read = io::read_hf(temporary / "in", Device::cpu(1));
  EXPECT_EQ(column(read, "mixer.q.weight"), (Column{0, 8, 48, 56, 96, 104, 144, 152}));
  EXPECT_EQ(column(read, "mixer.v.weight"), (Column{16, 24, 64, 72, 112, 120, 160, 168}));
  EXPECT_EQ(column(read, "mixer.k.weight"), (Column{32, 40, 80, 88, 128, 136, 176, 184}));
  EXPECT_EQ(io::write_hf(temporary / "out", read), "codegen");
  EXPECT_EQ(contents_of(temporary / "in/model.safetensors"), contents_of(temporary / "out/model.safetensors"));
}

TEST(HfLayout, Phi3JoinsRows) {
  const std::string config =
      R"({"model_type": "phi3", "vocab_size": 5, "hidden_size": 4, "num_attention_heads": 2,
          "num_key_value_heads": 1, "num_hidden_layers": 1, "intermediate_size": 3, "pad_token_id": null})";
  const auto read = read_numbered(config, "model.layers.0.self_attn.qkv_proj.weight", {8, 4});
  EXPECT_EQ(column(read, "mixer.q.weight"), (Column{0, 4, 8, 12}));
  EXPECT_EQ(column(read, "mixer.k.weight"), (Column{16, 20}));
  EXPECT_EQ(column(read, "mixer.v.weight"), (Column{24, 28}));
  const auto gated = read_numbered(config, "model.layers.0.mlp.gate_up_proj.weight", {6, 4});
  EXPECT_EQ(column(gated, "ffn.gate.weight"), (Column{0, 4, 8}));
  EXPECT_EQ(column(gated, "ffn.up.weight"), (Column{12, 16, 20}));
}

TEST(HfLayout, MptJoinsRows) {
  const auto read =
      read_numbered(R"({"model_type": "mpt", "vocab_size": 5, "d_model": 2, "n_heads": 1, "n_layers": 1})",
                    "transformer.blocks.0.attn.Wqkv.weight", {6, 2});
  EXPECT_EQ(column(read, "mixer.q.weight"), (Column{0, 2}));
  EXPECT_EQ(column(read, "mixer.k.weight"), (Column{4, 6}));
  EXPECT_EQ(column(read, "mixer.v.weight"), (Column{8, 10}));
}

const char* const kGptOss =
    R"({"model_type": "gpt_oss", "vocab_size": 5, "hidden_size": 2, "num_attention_heads": 1,
        "num_key_value_heads": 1, "head_dim": 2, "num_hidden_layers": 1, "num_local_experts": 2,
        "num_experts_per_tok": 1, "intermediate_size": 3})";

/// [experts, hidden, 2 · inner]; gate is [..., ::2], up is [..., 1::2].
TEST(HfLayout, GptOssInterleavesColumns) {
  const auto read = read_numbered(kGptOss, "model.layers.0.mlp.experts.gate_up_proj", {2, 2, 6});
  EXPECT_EQ(tensor_of(read, "layers.0.ffn.experts.gate.weight").to_vector<float>(),
            (Column{0, 6, 2, 8, 4, 10, 12, 18, 14, 20, 16, 22}));
  EXPECT_EQ(tensor_of(read, "layers.0.ffn.experts.up.weight").to_vector<float>(),
            (Column{1, 7, 3, 9, 5, 11, 13, 19, 15, 21, 17, 23}));
}

TEST(HfLayout, GptOssBiasesAndDown) {
  const auto bias = read_numbered(kGptOss, "model.layers.0.mlp.experts.gate_up_proj_bias", {2, 6});
  EXPECT_EQ(tensor_of(bias, "layers.0.ffn.experts.gate.bias").to_vector<float>(), (Column{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(tensor_of(bias, "layers.0.ffn.experts.up.bias").to_vector<float>(), (Column{1, 3, 5, 7, 9, 11}));
  const auto down = read_numbered(kGptOss, "model.layers.0.mlp.experts.down_proj", {2, 3, 2});
  EXPECT_EQ(tensor_of(down, "layers.0.ffn.experts.down.weight").to_vector<float>(),
            (Column{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
}

TEST(HfLayout, MixtralStacksExperts) {
  const auto read = read_numbered(
      R"({"model_type": "mixtral", "vocab_size": 5, "hidden_size": 2, "num_attention_heads": 1,
          "num_key_value_heads": 1, "num_hidden_layers": 1, "num_local_experts": 2, "num_experts_per_tok": 1,
          "intermediate_size": 1})",
      "model.layers.0.block_sparse_moe.experts.1.w3.weight", {1, 2});
  const Tensor up = tensor_of(read, "layers.0.ffn.experts.up.weight");
  EXPECT_EQ(up.shape(), (Shape{2, 1, 2}));
  EXPECT_EQ(up.slice(0, 1, 1).contiguous().to_vector<float>(), (Column{0, 1}));
}

TEST(HfLayout, StablelmHasANormPerHead) {
  const auto read = read_numbered(
      R"({"model_type": "stablelm", "vocab_size": 5, "hidden_size": 4, "num_attention_heads": 2,
          "num_key_value_heads": 1, "num_hidden_layers": 1, "intermediate_size": 3, "qk_layernorm": true,
          "partial_rotary_factor": 1.0})",
      "model.layers.0.self_attn.q_layernorm.norms.1.weight", {2});
  const Column q = tensor_of(read, "layers.0.mixer.q_norm.weight").to_vector<float>();
  EXPECT_EQ((Column{q[2], q[3]}), (Column{0, 1}));
  EXPECT_EQ(tensor_of(read, "layers.0.mixer.k_norm.weight").shape(), (Shape{2}));
}

TEST(HfLayout, CohereNormsHaveARowPerHead) {
  const auto read = read_numbered(
      R"({"model_type": "cohere", "vocab_size": 5, "hidden_size": 4, "num_attention_heads": 2,
          "num_hidden_layers": 1, "intermediate_size": 3, "use_qk_norm": true})",
      "model.layers.0.self_attn.q_norm.weight", {2, 2});
  EXPECT_EQ(tensor_of(read, "layers.0.mixer.q_norm.weight").to_vector<float>(), (Column{0, 1, 2, 3}));
}

TEST(HfLayout, MambaConvolutionLosesItsMiddle) {
  const auto read = read_numbered(
      R"({"model_type": "mamba", "vocab_size": 5, "hidden_size": 1, "num_hidden_layers": 1, "state_size": 1})",
      "backbone.layers.0.mixer.conv1d.weight", {2, 1, 4});
  EXPECT_EQ(tensor_of(read, "layers.0.mixer.conv.weight").shape(), (Shape{2, 4}));
}

}  // namespace
}  // namespace lamina::testing
