#include <cmath>

#include "lamina/io/hf/family.h"

/// Families of sequential (not parallel) blocks: RoPE attention, then a gated feed-forward.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

void llama(ConfigMap& m, Draft& d) {
  const auto [a, f] = gated_decoder(m, d, {{32000, 4096, 32, 32, {}, 2048}, {}, 11008});
  attention_bias(m, a, false);
  m.flags("mlp_bias", {&f.bias}, false);
}

void mistral(ConfigMap& m, Draft& d) {
  gated_decoder(m, d, {{32000, 4096, 32, 32, 8, 131072}, {}, 14336});
  window_everywhere(m, d, 4096);
}

/// use_sliding_window enables sliding_window, which applies to layers from max_window_layers on.
void qwen_windows(ConfigMap& m, Draft& d) {
  switched_window(m, d, 4096);
  int64_t first = 28;
  if (m.reading()) m.entry("max_window_layers", first, 28);
  m.layer_types(d, [&](int64_t layer) { return d.window && layer >= first; });
}

void qwen2(ConfigMap& m, Draft& d) {
  Attention& a = gated_decoder(m, d, {{151936, 4096, 32, 32, 32, 32768}, {}, 22016}).attention;
  m.constant(a.bias, {true, true, true, false});
  qwen_windows(m, d);
}

void qwen3(ConfigMap& m, Draft& d) {
  Attention& a = gated_decoder(m, d, {{151936, 4096, 32, 32, 32, 32768}, 128, 22016}).attention;
  m.constant(a.qk_norm, PerHeadQkNorm{});
  attention_bias(m, a, false);
  qwen_windows(m, d);
}

void olmo(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {50304, 4096, 32, 32, {}, 2048});
  m.entry("head_dim", a.head_dim, {});
  gated(m, d.block.ffn, 11008);
  m.constant(d.spec.norm, LayerNormNoParams{1e-5});
  tied(m, d, false);
  padding(m, d, 1);
  m.rope(d, {});
  attention_bias(m, a, false);
  m.entry("clip_qkv", a.clip_qkv, {});
}

void olmo2(ConfigMap& m, Draft& d) {
  Attention& a = gated_decoder(m, d, {{50304, 4096, 32, 32, {}, 2048}, {}, 11008, 1e-5, false, 1}).attention;
  attention_bias(m, a, false);
  m.constant(a.qk_norm, WholeQkNorm{});
  m.constant(d.block.placement, Placement::branch_post);
}

NameMap olmo2_names() {
  return joined({decoder_names(),
                 attention_names(),
                 gated_names(),
                 {{"model.layers.{l}.post_attention_layernorm.*", "mixer_output_norm.*"},
                  {"model.layers.{l}.post_feedforward_layernorm.*", "ffn_output_norm.*"}}});
}

/// A number whose reciprocal is exactly `value` or, if none exists, the one nearest to it.
double reciprocal(double value) {
  const double near = 1.0 / value;
  for (const double candidate : {std::nextafter(near, 0.0), std::nextafter(near, 1e300)}) {
    if (1.0 / near != value && 1.0 / candidate == value) return candidate;
  }
  return near;
}

}  // namespace

void granite_multipliers(ConfigMap& m, Draft& d, Attention& a) {
  m.entry("embedding_multiplier", m.as<ConstantScale>(d.spec.embedding.scale).value, 1.0);
  m.entry("residual_multiplier", d.block.residual_scale, 1.0);
  double scale = a.scale.value_or(1.0);
  m.entry("attention_multiplier", scale, 1.0);
  m.constant(a.scale, scale);
  double& logits = m.as<ConstantScale>(d.spec.head.scale).value;
  double divisor = reciprocal(logits);
  m.entry("logits_scaling", divisor, 1.0);
  m.constant(logits, 1.0 / divisor);
}

namespace {

void granite(ConfigMap& m, Draft& d) {
  llama(m, d);
  granite_multipliers(m, d, m.as<Attention>(d.block.mixer));
}

void smollm3(ConfigMap& m, Draft& d) {
  const auto [a, f] =
      gated_decoder(m, d, {{128256, 2048, 36, 16, 4, 32768}, {}, 11008, 1e-6, true, 128004, {.theta = 2000000.0}});
  attention_bias(m, a, false);
  m.flags("mlp_bias", {&f.bias}, false);
  int64_t interval = 4;
  if (m.reading()) m.entry("no_rope_layer_interval", interval, 4);
  if (interval < 1) m.fail("no_rope_layer_interval", "expected a positive number");
  m.zero_layers("no_rope_layers", d, d.unrotated, [&](int64_t layer) { return (layer + 1) % interval == 0; });
  switched_window(m, d, {});
  m.ignore({"max_window_layers"});
  m.layer_types(d, [&](int64_t layer) { return d.window && d.unrotated[static_cast<size_t>(layer)]; });
}

void glm(ConfigMap& m, Draft& d) {
  Attention& a =
      gated_decoder(m, d, {{151552, 4096, 40, 32, 2, 131072}, 128, 13696, 1.5625e-7, false, 151329, {10000.0, 0.5}})
          .attention;
  m.constant(m.need(d.rope).pairing, Pairing::interleaved);
  m.flags("attention_bias", {&a.bias.q, &a.bias.k, &a.bias.v}, true);
}

NameMap glm_names() {
  return joined({decoder_names(),
                 attention_names(),
                 pre_norm_names(),
                 {{"model.layers.{l}.mlp.gate_up_proj.*", "ffn.gate.* ffn.up.*"},
                  {"model.layers.{l}.mlp.down_proj.*", "ffn.down.*"}}});
}

void stablelm(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {50304, 2560, 32, 32, 32, 4096});
  gated(m, d.block.ffn, 6912);
  const double eps = layer_norm(m, d, "layer_norm_eps", 1e-5).eps;
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {10000.0, 0.25});
  m.flags("use_qkv_bias", {&a.bias.q, &a.bias.k, &a.bias.v}, false);
  bool normed = !std::holds_alternative<NoQkNorm>(a.qk_norm);
  m.entry("qk_layernorm", normed, false);
  if (m.reading() && normed) a.qk_norm = PerHeadQkNorm{LayerNorm{.eps = eps, .bias = false}, true};
  bool parallel = std::holds_alternative<ParallelWiring>(d.block.wiring);
  m.entry("use_parallel_residual", parallel, false);
  if (m.reading() && parallel) d.block.wiring = ParallelWiring{};
}

NameMap stablelm_names() {
  return joined({{{"model.layers.{l}.self_attn.q_layernorm.norms.{e}.weight", "mixer.q_norm.weight"},
                  {"model.layers.{l}.self_attn.k_layernorm.norms.{e}.weight", "mixer.k_norm.weight"},
                  {"model.layers.{l}.input_layernorm.*", "norm.*"}},
                 llama_names()});
}

void nemotron(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {256000, 6144, 32, 48, {}, 4096});
  m.entry("head_dim", a.head_dim, {});
  PlainFfn& f = plain(m, d, "intermediate_size", 24576, "hidden_act", "relu2");
  m.constant(layer_norm(m, d, "norm_eps", 1e-5).offset, 1.0);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {10000.0, 0.5});
  attention_bias(m, a, false);
  m.flags("mlp_bias", {&f.bias}, false);
}

void starcoder2(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {49152, 3072, 30, 24, 2, 4096});
  m.entry("head_dim", a.head_dim, {});
  PlainFfn& f = plain(m, d, "intermediate_size", 12288, "hidden_act|activation_function", "gelu_pytorch_tanh");
  layer_norm(m, d, "norm_epsilon", 1e-5);
  tied(m, d, true);
  padding(m, d);
  m.rope(d, {});
  m.flags("use_bias", {&a.bias.q, &a.bias.k, &a.bias.v, &a.bias.o, &f.bias}, true);
  window_everywhere(m, d, {});
  m.only("mlp_type", {"\"default\""}, "gated feed-forwards of this family are not read");
  m.only("norm_type", {"\"layer_norm\""}, "other norms of this family are not read");
}

NameMap starcoder2_names() {
  return joined({decoder_names(),
                 attention_names(),
                 pre_norm_names(),
                 {{"model.layers.{l}.mlp.c_fc.*", "ffn.up.*"}, {"model.layers.{l}.mlp.c_proj.*", "ffn.down.*"}}});
}

}  // namespace

std::vector<Family> llama_kin() {
  return {
      {"llama", "LlamaForCausalLM", llama, llama_names()},
      {"mistral", "MistralForCausalLM", mistral, llama_names()},
      {"qwen2", "Qwen2ForCausalLM", qwen2, llama_names()},
      {"qwen3", "Qwen3ForCausalLM", qwen3, llama_names()},
      {"olmo", "OlmoForCausalLM", olmo, llama_names()},
      {"olmo2", "Olmo2ForCausalLM", olmo2, olmo2_names()},
      {"granite", "GraniteForCausalLM", granite, llama_names()},
      {"smollm3", "SmolLM3ForCausalLM", smollm3, llama_names()},
      {"glm", "GlmForCausalLM", glm, glm_names()},
      {"stablelm", "StableLmForCausalLM", stablelm, stablelm_names()},
      {"nemotron", "NemotronForCausalLM", nemotron, llama_names()},
      {"starcoder2", "Starcoder2ForCausalLM", starcoder2, starcoder2_names()},
  };
}

}  // namespace lamina::io::hf
