#include <bit>
#include <cmath>

#include "lamina/io/hf/family.h"

/// Decoders with linear recurrent units and local attention.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

/// sqrt(d_model) rounded to bf16, as the family multiplies its embeddings.
double rounded_root(int64_t d_model) {
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(d_model)));
  auto bits = std::bit_cast<uint32_t>(root);
  bits = (bits + 0x7fff + ((bits >> 16U) & 1U)) & 0xffff0000U;
  return static_cast<double>(std::bit_cast<float>(bits));
}

void recurrent_gemma(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {256000, 2560, 26, 10, {}, 8192});
  m.entry("head_dim", a.head_dim, {});
  auto& norm = m.as<RmsNorm>(d.spec.norm);
  m.entry("rms_norm_eps", norm.eps, 1e-6);
  m.constant(norm.offset, 1.0);
  tied(m, d, true);
  padding(m, d, 0);
  m.rope(d, {10000.0, 0.5});
  m.flags("attention_bias", {&a.bias.q, &a.bias.k, &a.bias.v}, false);
  m.constant(a.bias.o, true);
  m.entry("attention_window_size", d.window, 2048);
  m.entry("logits_soft_cap", d.spec.head.soft_cap, 30.0);
  m.constant(d.spec.embedding.scale, ConstantScale{rounded_root(d.spec.d_model)});
  auto& f = m.as<GatedFfn>(d.block.ffn);
  int64_t both = 2 * f.d_ff.value_or(0);  // the key is the width of gate and up together
  m.entry("intermediate_size", both, 7680);
  m.constant(f.d_ff, both / 2);
  m.entry("hidden_activation", f.gate, "gelu_pytorch_tanh");
  m.constant(f.bias, true);
  if (m.reading() && f.gate != Gate::geglu_tanh) {
    m.fail("hidden_activation", "expected gelu_pytorch_tanh: the recurrent layers use it, too");
  }
  auto& lru = m.as<RgLru>(m.need(d.other_mixer));
  m.entry("lru_width", lru.width, {});
  m.entry("conv1d_width", lru.conv, 4);
  m.constant(lru.blocks, a.n_heads);
  m.layer_kinds(
      "block_types|_block_types", d, "recurrent", "attention", [](int64_t layer) { return layer % 3 != 2; },
      ListLength::repeated);
  if (m.reading()) d.sliding.assign(static_cast<size_t>(d.n_layers), true);
  m.ignore({"w_init_variance_scale", "final_w_init_variance_scale", "embeddings_scale_by_sqrt_dim"});
}

NameMap recurrent_gemma_names() {
  return joined({{{"model.final_norm.*", "final_norm.*"},
                  {"model.layers.{l}.temporal_pre_norm.*", "mixer_norm.*"},
                  {"model.layers.{l}.channel_pre_norm.*", "ffn_norm.*"},
                  {"model.layers.{l}.temporal_block.q_proj.*", "mixer.q.*"},
                  {"model.layers.{l}.temporal_block.k_proj.*", "mixer.k.*"},
                  {"model.layers.{l}.temporal_block.v_proj.*", "mixer.v.*"},
                  {"model.layers.{l}.temporal_block.o_proj.*", "mixer.o.*"},
                  {"model.layers.{l}.temporal_block.linear_y.*", "mixer.y.*"},
                  {"model.layers.{l}.temporal_block.linear_x.*", "mixer.x.*"},
                  {"model.layers.{l}.temporal_block.linear_out.*", "mixer.out.*"},
                  {"model.layers.{l}.temporal_block.conv_1d.*", "mixer.conv.*", Rows::whole, Form::conv},
                  {"model.layers.{l}.temporal_block.rg_lru.input_gate_weight", "mixer.input_gate.weight"},
                  {"model.layers.{l}.temporal_block.rg_lru.input_gate_bias", "mixer.input_gate.bias"},
                  {"model.layers.{l}.temporal_block.rg_lru.recurrent_gate_weight", "mixer.recurrence_gate.weight"},
                  {"model.layers.{l}.temporal_block.rg_lru.recurrent_gate_bias", "mixer.recurrence_gate.bias"},
                  {"model.layers.{l}.temporal_block.rg_lru.recurrent_param", "mixer.decay"},
                  {"model.layers.{l}.mlp_block.gate_proj.*", "ffn.gate.*"},
                  {"model.layers.{l}.mlp_block.up_proj.*", "ffn.up.*"},
                  {"model.layers.{l}.mlp_block.down_proj.*", "ffn.down.*"}},
                 decoder_names()});
}

}  // namespace

std::vector<Family> recurrent_kin() {
  return {{"recurrent_gemma", "RecurrentGemmaForCausalLM", recurrent_gemma, recurrent_gemma_names()}};
}

}  // namespace lamina::io::hf
