#include <cmath>

#include "lamina/io/hf/family.h"

/// Gemma and Cohere: alternating sliding windows, norms before and after each branch (Gemma), parallel branches
/// (Cohere).
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

NameMap sandwich_names() {
  return joined({decoder_names(),
                 attention_names(),
                 gated_names(),
                 {{"model.layers.{l}.input_layernorm.*", "mixer_norm.*"},
                  {"model.layers.{l}.post_attention_layernorm.*", "mixer_output_norm.*"},
                  {"model.layers.{l}.pre_feedforward_layernorm.*", "ffn_norm.*"},
                  {"model.layers.{l}.post_feedforward_layernorm.*", "ffn_output_norm.*"}}});
}

/// Maps the keys common to all Gemma versions.
Attention& gemma_base(ConfigMap& m, Draft& d, const DecoderSizes& sizes, int64_t d_ff, std::string_view act_key) {
  Attention& a = decoder(m, d, sizes);
  m.entry("head_dim", a.head_dim, 256);
  gated(m, d.block.ffn, d_ff, act_key, "gelu_pytorch_tanh");
  rms(m, d, "rms_norm_eps", 1e-6);
  m.constant(m.as<RmsNorm>(d.spec.norm).offset, 1.0);
  m.constant(d.spec.embedding.scale, SqrtWidthScale{});
  tied(m, d, true);
  padding(m, d, 0);
  attention_bias(m, a, false);
  m.only("use_bidirectional_attention", {"null", "false"}, "models that see the future are not read");
  return a;
}

void gemma(ConfigMap& m, Draft& d) {
  gemma_base(m, d, {256000, 3072, 28, 16, 16, 8192}, 24576, "hidden_act|hidden_activation");
  m.rope(d, {});
}

/// Maps query_pre_attn_scalar. The attention scale is query_pre_attn_scalar^{-1/2}.
void query_scalar(ConfigMap& m, Attention& a) {
  double scalar = a.scale ? 1.0 / (*a.scale * *a.scale) : 256.0;
  if (std::abs(scalar - std::round(scalar)) < 1e-9 * scalar) scalar = std::round(scalar);
  int64_t whole = static_cast<int64_t>(scalar);
  if (!m.reading() && static_cast<double>(whole) == scalar) {
    m.entry("query_pre_attn_scalar", whole, 256);  // transformers expects an integer
  } else {
    m.entry("query_pre_attn_scalar", scalar, 256.0);
  }
  m.constant(a.scale, 1.0 / std::sqrt(scalar));
}

void gemma2(ConfigMap& m, Draft& d) {
  Attention& a = gemma_base(m, d, {256000, 2304, 26, 8, 4, 8192}, 9216, "hidden_activation|hidden_act");
  m.rope(d, {});
  query_scalar(m, a);
  m.constant(d.block.placement, Placement::sandwich);
  m.entry("final_logit_softcapping", d.spec.head.soft_cap, 30.0);
  m.entry("attn_logit_softcapping", a.soft_cap, 50.0);
  m.entry("sliding_window|sliding_window_size", d.window, 4096);
  m.layer_types(d, [](int64_t layer) { return layer % 2 == 0; });
  m.ignore({"cache_implementation"});
}

void gemma3(ConfigMap& m, Draft& d) {
  Attention& a = gemma_base(m, d, {262208, 2304, 26, 8, 4, 131072}, 9216, "hidden_activation");
  m.local_and_global_rope(d, 10000.0, 1000000.0);
  query_scalar(m, a);
  m.constant(a.qk_norm, PerHeadQkNorm{});
  m.constant(d.block.placement, Placement::sandwich);
  m.entry("final_logit_softcapping", d.spec.head.soft_cap, {});
  m.ignore({"attn_logit_softcapping"});  // in files, but transformers does not apply it here
  m.entry("sliding_window", d.window, 4096);
  int64_t pattern = 6;
  if (m.reading()) m.entry("sliding_window_pattern|_sliding_window_pattern", pattern, 6);
  if (pattern < 1) m.fail("sliding_window_pattern", "expected a positive number");
  m.layer_types(d, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  m.ignore({"cache_implementation"});
}

/// Attention and feed-forward in parallel after one norm without bias. The logits are scaled.
Attention& cohere_base(ConfigMap& m, Draft& d, double theta) {
  Attention& a = decoder(m, d, {256000, 8192, 40, 64, {}, 8192});
  gated(m, d.block.ffn, 22528);
  layer_norm(m, d, "layer_norm_eps", 1e-5, false);
  tied(m, d, true);
  padding(m, d, 0);
  m.rope(d, {theta});
  m.constant(m.need(d.rope).pairing, Pairing::interleaved);
  m.constant(d.block.wiring, ParallelWiring{});
  attention_bias(m, a, false);
  m.entry("logit_scale", m.as<ConstantScale>(d.spec.head.scale).value, 0.0625);
  return a;
}

void cohere(ConfigMap& m, Draft& d) {
  Attention& a = cohere_base(m, d, 500000.0);
  m.entry("head_dim", a.head_dim, {});
  bool normed = !std::holds_alternative<NoQkNorm>(a.qk_norm);
  m.entry("use_qk_norm", normed, false);
  if (m.reading() && normed) a.qk_norm = PerHeadQkNorm{{}, true};
  m.ignore({"model_max_length"});
}

/// Layers with a sliding window use RoPE; the others have no position encoding.
void cohere2(ConfigMap& m, Draft& d) {
  Attention& a = cohere_base(m, d, 10000.0);
  if (m.reading()) {
    // head_dim is always hidden_size / heads in this family; files may repeat it.
    m.entry("head_dim", a.head_dim, {});
    const int64_t width = a.n_heads > 0 ? d.spec.d_model / a.n_heads : 0;
    if (a.head_dim && *a.head_dim != width) m.fail("head_dim", str(*a.head_dim, ", expected hidden_size / heads"));
  }
  m.entry("sliding_window", d.window, 4096);
  int64_t pattern = 4;
  if (m.reading()) m.entry("sliding_window_pattern|_sliding_window_pattern", pattern, 4);
  if (pattern < 1) m.fail("sliding_window_pattern", "expected a positive number");
  m.layer_types(d, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  if (m.reading()) {
    d.unrotated = d.sliding;
    d.unrotated.flip();
  }
  m.only("order_of_interleaved_layers", {"\"local_attn_first\""}, "other orders are not read");
  m.only("position_embedding_type", {"\"rope_gptj\""}, "other positions are not read");
  m.only("rotary_pct", {"1.0", "1"}, "partial rotation is not read");
  m.only("use_gated_activation", {"true"}, "plain feed-forwards are not read");
  m.only("use_parallel_block", {"true"}, "serial blocks are not read");
  m.only("use_qk_norm", {"false"}, "norms of queries and keys are not read");
  m.ignore({"cache_implementation", "layer_switch", "use_embedding_sharing", "use_parallel_embedding"});
}

NameMap cohere_names() {
  return joined({{{"model.layers.{l}.input_layernorm.*", "norm.*"},
                  {"model.layers.{l}.self_attn.q_norm.weight", "mixer.q_norm.weight", Rows::whole, Form::per_head},
                  {"model.layers.{l}.self_attn.k_norm.weight", "mixer.k_norm.weight", Rows::whole, Form::per_head}},
                 decoder_names(),
                 attention_names(),
                 gated_names()});
}

}  // namespace

std::vector<Family> gemma_kin() {
  return {
      {"gemma", "GemmaForCausalLM", gemma,
       joined({decoder_names(), attention_names(), gated_names(), pre_norm_names()})},
      {"gemma2", "Gemma2ForCausalLM", gemma2, sandwich_names()},
      {"gemma3_text", "Gemma3ForCausalLM", gemma3, sandwich_names()},
      {"cohere", "CohereForCausalLM", cohere, cohere_names()},
      {"cohere2", "Cohere2ForCausalLM", cohere2, cohere_names()},
  };
}

}  // namespace lamina::io::hf
