#include "lamina/io/hf/family.h"

#include <iterator>

#include "lamina/arch/layers.h"

namespace lamina::io::hf {
namespace {

constexpr int64_t kMaxLayers = 10000;

std::vector<Family> all_families() {
  std::vector<Family> all;
  for (std::vector<Family>& part : std::vector<std::vector<Family>>{
           llama_kin(), gemma_kin(), expert_kin(), gpt_kin(), phi_kin(), state_space_kin(), bert_kin(),
           encoder_decoder_kin(), llama_variants(), hybrid_kin(), recurrent_kin(), expert_variants(), linear_kin()}) {
    all.insert(all.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return all;
}

void map_layers(ConfigMap& map, std::string_view keys, int64_t& count, int64_t otherwise) {
  map.entry(keys, count, otherwise);
  if (count < 1 || count > kMaxLayers) map.fail(keys, str(count, ", expected 1 to ", kMaxLayers));
}

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> all = all_families();
  return all;
}

std::vector<NamedConstant> named_constants(const Family& family, const arch::ArchSpec& resolved) {
  std::vector<NamedConstant> list;
  const std::vector<const arch::Block*> blocks = arch::layer_blocks(resolved);
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const ConstantTensor& constant : family.constants) {
      std::string name(constant.hf);
      name.replace(name.find("{l}"), 3, std::to_string(i));
      list.push_back({std::move(name), constant.value(*blocks[i])});
    }
  }
  return list;
}

const Family& family(const std::string& model_type) {
  std::vector<std::string> names;
  for (const Family& candidate : families()) {
    if (candidate.model_type == model_type) return candidate;
    names.emplace_back(candidate.model_type);
  }
  const std::string nearest = nearest_of(model_type.substr(0, 64), names);
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw Error(str("the model_type \"", model_type.substr(0, 64), "\" is not known; ",
                  nearest.empty() ? "known are " + list : "did you mean " + nearest + "?"));
}

bool is_headless(const Family& family, const arch::ArchSpec& resolved) {
  const arch::Head& head = resolved.head;
  return family.headless && head.tied && !head.bias && !head.transform;
}

NameMap written_names(const Family& family, const arch::ArchSpec& resolved) {
  NameMap names = family.names;
  if (!is_headless(family, resolved)) return names;
  for (NameEntry& entry : names) {
    if (entry.hf.starts_with(family.headless->prefix)) entry.hf.remove_prefix(family.headless->prefix.size());
  }
  return names;
}

void layers(ConfigMap& map, std::string_view keys, Draft& draft, int64_t otherwise) {
  map_layers(map, keys, draft.n_layers, otherwise);
}

void encoder_layers(ConfigMap& map, std::string_view keys, Draft& draft, int64_t otherwise) {
  map_layers(map, keys, draft.n_encoder_layers, otherwise);
}

void padding(ConfigMap& map, Draft& draft, std::optional<int64_t> otherwise) {
  std::optional<int64_t>& token = draft.spec.embedding.padding_token;
  const int64_t tokens = draft.spec.vocab_size;
  map.entry("pad_token_id", token, otherwise);
  if (token && *token < 0 && tokens > 0) *token += tokens;
  if (token && (*token < 0 || *token >= tokens)) token.reset();
}

arch::Attention& decoder(ConfigMap& map, Draft& draft, const DecoderSizes& otherwise) {
  auto& a = map.as<arch::Attention>(draft.block.mixer);
  map.entry("vocab_size", draft.spec.vocab_size, otherwise.vocab_size);
  map.entry("hidden_size", draft.spec.d_model, otherwise.d_model);
  layers(map, "num_hidden_layers", draft, otherwise.n_layers);
  map.entry("num_attention_heads", a.n_heads, otherwise.n_heads);
  map.entry("num_key_value_heads", a.n_kv_heads, otherwise.n_kv_heads);
  map.entry("max_position_embeddings", draft.spec.context, otherwise.context);
  return a;
}

arch::GatedFfn& gated(ConfigMap& map, arch::Ffn& ffn, int64_t d_ff, std::string_view activation_key,
                      std::string_view activation) {
  auto& f = map.as<arch::GatedFfn>(ffn);
  map.entry("intermediate_size", f.d_ff, d_ff);
  map.entry(activation_key, f.gate, activation);
  return f;
}

GatedDecoderParts gated_decoder(ConfigMap& m, Draft& d, const GatedDecoderDefaults& otherwise) {
  arch::Attention& a = decoder(m, d, otherwise.sizes);
  m.entry("head_dim", a.head_dim, otherwise.head_dim);
  arch::GatedFfn& f = gated(m, d.block.ffn, otherwise.d_ff);
  rms(m, d, "rms_norm_eps", otherwise.eps);
  tied(m, d, otherwise.tied);
  padding(m, d, otherwise.padding);
  m.rope(d, otherwise.rope);
  return {a, f};
}

arch::PlainFfn& plain(ConfigMap& map, Draft& draft, std::string_view width_key, std::optional<int64_t> width,
                      std::string_view activation_key, std::string_view activation) {
  auto& f = map.as<arch::PlainFfn>(draft.block.ffn);
  map.entry(width_key, f.d_ff, width);
  map.entry(activation_key, f.activation, activation);
  return f;
}

void rms(ConfigMap& map, Draft& draft, std::string_view key, double eps) {
  map.entry(key, map.as<arch::RmsNorm>(draft.spec.norm).eps, eps);
}

arch::LayerNorm& layer_norm(ConfigMap& map, Draft& draft, std::string_view key, double eps, bool bias) {
  auto& norm = map.as<arch::LayerNorm>(draft.spec.norm);
  map.entry(key, norm.eps, eps);
  map.constant(norm.bias, bias);
  return norm;
}

void tied(ConfigMap& map, Draft& draft, bool otherwise) {
  map.entry("tie_word_embeddings", draft.spec.head.tied, otherwise);
}

void attention_bias(ConfigMap& m, arch::Attention& a, bool otherwise) {
  m.flags("attention_bias", {&a.bias.q, &a.bias.k, &a.bias.v, &a.bias.o}, otherwise);
}

void switched_window(ConfigMap& m, Draft& d, std::optional<int64_t> otherwise) {
  bool used = d.window.has_value();
  m.entry("use_sliding_window", used, false);
  m.entry("sliding_window", d.window, otherwise);
  if (m.reading() && !used) d.window.reset();
}

void window_everywhere(ConfigMap& map, Draft& draft, std::optional<int64_t> otherwise) {
  map.entry("sliding_window", draft.window, otherwise);
  if (map.reading()) draft.sliding.assign(static_cast<size_t>(draft.n_layers), draft.window.has_value());
}

NameMap joined(std::initializer_list<NameMap> parts) {
  NameMap all;
  for (const NameMap& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

NameMap decoder_names() {
  return {{"model.embed_tokens.weight", "embedding.weight"}, {"model.norm.*", "final_norm.*"}, {"lm_head.*", "head.*"}};
}

NameMap attention_names() {
  return {{"model.layers.{l}.self_attn.q_proj.*", "mixer.q.*"},
          {"model.layers.{l}.self_attn.k_proj.*", "mixer.k.*"},
          {"model.layers.{l}.self_attn.v_proj.*", "mixer.v.*"},
          {"model.layers.{l}.self_attn.o_proj.*", "mixer.o.*"},
          {"model.layers.{l}.self_attn.q_norm.*", "mixer.q_norm.*"},
          {"model.layers.{l}.self_attn.k_norm.*", "mixer.k_norm.*"}};
}

NameMap gated_names() {
  return {{"model.layers.{l}.mlp.gate_proj.*", "ffn.gate.*"},
          {"model.layers.{l}.mlp.up_proj.*", "ffn.up.*"},
          {"model.layers.{l}.mlp.down_proj.*", "ffn.down.*"}};
}

NameMap pre_norm_names() {
  return {{"model.layers.{l}.input_layernorm.*", "mixer_norm.*"},
          {"model.layers.{l}.post_attention_layernorm.*", "ffn_norm.*"}};
}

NameMap llama_names() { return joined({decoder_names(), attention_names(), gated_names(), pre_norm_names()}); }

}  // namespace lamina::io::hf
