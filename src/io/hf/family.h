#pragma once

#include <span>
#include <string>

#include "lamina/io/hf/config_map.h"
#include "lamina/io/hf/names.h"

namespace lamina::io::hf {

/// A scalar (rank 0) that the family's files store as a tensor in every layer, although the architecture implies its
/// value.
struct ConstantTensor {
  std::string_view hf;  ///< tensor name; {l} is the layer
  double (*value)(const arch::Block& block);
};

/// Files of an encoder without its masked-language-model head, as transformers' base classes write them.
struct HeadlessFiles {
  std::string_view architecture;  ///< the class name in config.json
  std::string_view prefix;        ///< of tensor names in files with a head; these have none
  std::string_view head;          ///< a tensor that only files with a head have
};

/// A model_type: its config.json and its tensor names, for reading and writing.
struct Family {
  std::string_view model_type;
  std::string_view architecture;  ///< the class name in config.json
  void (*config)(ConfigMap& map, Draft& draft);
  NameMap names;
  bool states_context = true;  ///< config.json has a key for the maximum sequence length
  bool later_layers = false;   ///< files may hold extra layers for training after the last one; skipped
  NameMap parameters = {};     ///< transformers' parameter names in memory, if they differ from the names in the files
  std::span<const std::string_view> extras = {};   ///< name prefixes of other heads' tensors; skipped
  std::span<const ConstantTensor> constants = {};  ///< scalars to check when reading and to store when writing
  std::optional<HeadlessFiles> headless = {};      ///< unset: all files have a head
};

/// A ConstantTensor of one layer: the full name and the expected value.
struct NamedConstant {
  std::string name;
  double value;
};
/// The constants of a family's files for a resolved architecture.
std::vector<NamedConstant> named_constants(const Family& family, const arch::ArchSpec& resolved);

/// All families. If several can represent an architecture, the first is the default.
std::span<const Family> families();
/// Finds a family by its model_type. For an unknown one, the Error suggests the nearest name.
const Family& family(const std::string& model_type);

/// Whether an architecture of this family is written as HeadlessFiles: its head is only the tied embedding.
bool is_headless(const Family& family, const arch::ArchSpec& resolved);
/// The tensor names that are written for an architecture.
NameMap written_names(const Family& family, const arch::ArchSpec& resolved);

/// The content of a config.json of any known family; the architecture is resolved.
struct Config {
  const Family* family = nullptr;
  arch::ArchSpec spec;
  Metadata tokens;  ///< as in Checkpoint
};
/// `headless`: whether the weights lack the head; default: as "architectures" says.
Config read_config(std::string_view text, const std::string& name, std::optional<bool> headless = {});
/// Writes a resolved architecture as the family's config.json. It may lose information: read it back and compare.
std::string write_config(const Family& family, const arch::ArchSpec& resolved, const Metadata& tokens, DType dtype);

// The families, in groups of related ones.
std::vector<Family> llama_kin();
std::vector<Family> llama_variants();
std::vector<Family> gemma_kin();
std::vector<Family> expert_kin();
std::vector<Family> expert_variants();
std::vector<Family> gpt_kin();
std::vector<Family> phi_kin();
std::vector<Family> state_space_kin();
std::vector<Family> hybrid_kin();
std::vector<Family> recurrent_kin();
std::vector<Family> linear_kin();
std::vector<Family> bert_kin();
std::vector<Family> encoder_decoder_kin();

// Parts of a config map that several families share.
struct DecoderSizes {
  int64_t vocab_size;
  int64_t d_model;
  int64_t n_layers;
  int64_t n_heads;
  std::optional<int64_t> n_kv_heads;
  int64_t context;
};
/// Maps vocab_size, hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, max_position_embeddings.
arch::Attention& decoder(ConfigMap& map, Draft& draft, const DecoderSizes& otherwise);
/// Maps pad_token_id, for families whose embedding gets no gradient for the padding row. As in PyTorch, a negative id
/// counts from the end; an id outside the vocabulary means none.
void padding(ConfigMap& map, Draft& draft, std::optional<int64_t> otherwise = {});
/// Maps the number of layers and checks its limit, because per-layer lists are allocated from it.
void layers(ConfigMap& map, std::string_view keys, Draft& draft, int64_t otherwise);
/// Maps and checks the number of encoder layers.
void encoder_layers(ConfigMap& map, std::string_view keys, Draft& draft, int64_t otherwise);
/// Maps intermediate_size and the activation of a gated feed-forward without biases.
arch::GatedFfn& gated(ConfigMap& map, arch::Ffn& ffn, int64_t d_ff, std::string_view activation_key = "hidden_act",
                      std::string_view activation = "silu");
arch::PlainFfn& plain(ConfigMap& map, Draft& draft, std::string_view width_key, std::optional<int64_t> width,
                      std::string_view activation_key, std::string_view activation);
void rms(ConfigMap& map, Draft& draft, std::string_view key, double eps);
arch::LayerNorm& layer_norm(ConfigMap& map, Draft& draft, std::string_view key, double eps, bool bias = true);
void tied(ConfigMap& map, Draft& draft, bool otherwise);
/// Maps attention_bias: whether all four projections have a bias.
void attention_bias(ConfigMap& map, arch::Attention& attention, bool otherwise);
/// Maps sliding_window, enabled by use_sliding_window. The family decides which layers have it.
void switched_window(ConfigMap& map, Draft& draft, std::optional<int64_t> otherwise);
/// Maps sliding_window, for every layer or none.
void window_everywhere(ConfigMap& map, Draft& draft, std::optional<int64_t> otherwise);

/// Default values of a family of gated decoders with RMSNorm and RoPE.
struct GatedDecoderDefaults {
  DecoderSizes sizes;
  std::optional<int64_t> head_dim;
  int64_t d_ff;
  double eps = 1e-6;
  bool tied = false;
  std::optional<int64_t> padding;
  RopeKeys rope;
};
/// The attention and feed-forward that gated_decoder() has mapped, for further keys.
struct GatedDecoderParts {
  arch::Attention& attention;
  arch::GatedFfn& ffn;
};
/// Maps the keys that such families share.
GatedDecoderParts gated_decoder(ConfigMap& map, Draft& draft, const GatedDecoderDefaults& otherwise);
/// Maps granite's multipliers of embedding, residual branches, attention scores and logits.
void granite_multipliers(ConfigMap& map, Draft& draft, arch::Attention& attention);

NameMap joined(std::initializer_list<NameMap> parts);
NameMap decoder_names();    ///< model.embed_tokens, model.norm, lm_head
NameMap attention_names();  ///< self_attn.q_proj … o_proj
NameMap gated_names();      ///< mlp.gate_proj, up_proj, down_proj
NameMap pre_norm_names();   ///< input_layernorm, post_attention_layernorm
NameMap llama_names();      ///< all of the above

}  // namespace lamina::io::hf
