#pragma once

#include <span>
#include <string>

#include "lamina/io/hf/config_map.h"
#include "lamina/io/hf/names.h"

namespace lamina::io::hf {

/// A model_type: what its config.json says and how its tensors are called. Both serve reading and writing.
struct Family {
  std::string_view model_type;
  std::string_view architecture;  ///< the class that config.json names
  void (*config)(ConfigMap& map, Draft& draft);
  NameMap names;
  bool states_context = true;  ///< config.json has a key for the longest sequence
  bool later_layers = false;   ///< files may hold layers behind the last one, for training, which are not the model's
  NameMap parameters = {};     ///< what transformers calls the parameters in memory, where files say otherwise
};

/// In the order in which a structure that fits several is given to one.
std::span<const Family> families();
/// An unknown one is an Error that names the nearest.
const Family& family(const std::string& model_type);

/// What a config.json of any known family says; the architecture is resolved.
struct Config {
  const Family* family = nullptr;
  arch::ArchSpec spec;
  Metadata tokens;  ///< as Checkpoint has them
};
Config read_config(std::string_view text, const std::string& name);
/// A resolved architecture as a config.json of the family. Equal to the given one when read back, or not: compare.
std::string write_config(const Family& family, const arch::ArchSpec& resolved, const Metadata& tokens, DType dtype);

// The table is written in parts, by kinship.
std::vector<Family> llama_kin();
std::vector<Family> gemma_kin();
std::vector<Family> expert_kin();
std::vector<Family> gpt_kin();
std::vector<Family> phi_kin();
std::vector<Family> state_space_kin();

// Entries that several families share.
struct DecoderSizes {
  int64_t vocab_size;
  int64_t d_model;
  int64_t n_layers;
  int64_t n_heads;
  std::optional<int64_t> n_kv_heads;
  int64_t context;
};
/// vocab_size, hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, max_position_embeddings.
arch::Attention& decoder(ConfigMap& map, Draft& draft, const DecoderSizes& otherwise);
/// pad_token_id of a family whose lookups give that token's row no gradient. As PyTorch reads it: a negative one counts
/// from the end; one that is no token is none.
void padding(ConfigMap& map, Draft& draft, std::optional<int64_t> otherwise = {});
/// The number of layers, within reason: lists per layer are made of it.
void layers(ConfigMap& map, std::string_view keys, Draft& draft, int64_t otherwise);
/// intermediate_size and the activation of a gated feed-forward without biases.
arch::GatedFfn& gated(ConfigMap& map, arch::Ffn& ffn, int64_t d_ff, std::string_view activation_key = "hidden_act",
                      std::string_view activation = "silu");
arch::PlainFfn& plain(ConfigMap& map, Draft& draft, std::string_view width_key, std::optional<int64_t> width,
                      std::string_view activation_key, std::string_view activation);
void rms(ConfigMap& map, Draft& draft, std::string_view key, double eps);
arch::LayerNorm& layer_norm(ConfigMap& map, Draft& draft, std::string_view key, double eps, bool bias = true);
void tied(ConfigMap& map, Draft& draft, bool otherwise);
/// attention_bias: whether all four projections have one.
void attention_bias(ConfigMap& map, arch::Attention& attention, bool otherwise);
/// sliding_window, which use_sliding_window switches; which layers have it is the family's affair.
void switched_window(ConfigMap& map, Draft& draft, std::optional<int64_t> otherwise);
/// sliding_window for every layer, or none.
void window_everywhere(ConfigMap& map, Draft& draft, std::optional<int64_t> otherwise);

NameMap joined(std::initializer_list<NameMap> parts);
NameMap decoder_names();    ///< model.embed_tokens, model.norm, lm_head
NameMap attention_names();  ///< self_attn.q_proj … o_proj
NameMap gated_names();      ///< mlp.gate_proj, up_proj, down_proj
NameMap pre_norm_names();   ///< input_layernorm, post_attention_layernorm

}  // namespace lamina::io::hf
