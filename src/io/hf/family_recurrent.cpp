#include <bit>
#include <cmath>

#include "lamina/io/hf/family.h"

/// Decoders with linear recurrent units and local attention, or with recurrent layers only.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

/// sqrt(d_model) rounded to bf16: the family multiplies its embeddings by the rounded value.
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
  int64_t both = 2 * f.d_ff.value_or(0);  // the key holds the widths of gate and up projection together
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

/// RWKV: one layer of the file becomes two blocks here, time mixing and channel mixing, each with its own norm.
void rwkv(ConfigMap& m, Draft& d) {
  m.entry("vocab_size", d.spec.vocab_size, 50277);
  m.entry("hidden_size", d.spec.d_model, 4096);
  if (!m.reading()) d.n_layers /= 2;
  layers(m, "num_hidden_layers", d, 32);
  d.n_layers *= 2;
  m.entry("context_length|max_position_embeddings", d.spec.context, 1024);
  m.entry("attention_hidden_size", m.as<Wkv>(d.block.mixer).width, {});
  m.entry("intermediate_size", m.as<ChannelMix>(m.need(d.other_mixer)).d_ff, {});
  const LayerNorm& norm = layer_norm(m, d, "layer_norm_epsilon", 1e-5);
  if (m.reading() && norm.eps != 1e-5) {
    m.fail("layer_norm_epsilon",
           str(norm.eps, ", but the final norm of this family has 1e-05; other values are not read"));
  }
  m.constant(d.spec.embedding.norm, d.spec.norm);
  tied(m, d, false);
  m.constant(d.block.ffn, NoFfn{});
  for (int64_t i = 0; m.reading() && i < d.n_layers; ++i) d.other.push_back(i % 2 == 1);
  m.ignore({"rescale_every"});  // dividing activations by powers of 2 avoids f16 overflow; the result is the same
}

NameMap rwkv_names() {
  NameMap names{{"rwkv.embeddings.weight", "embedding.weight"},
                {"rwkv.blocks.0.pre_ln.*", "embedding.norm.*"},
                {"rwkv.ln_out.*", "final_norm.*"},
                {"head.weight", "head.weight"}};
  const auto first = [&](std::string_view hf, std::string_view ours, Form form = Form::same) {
    names.push_back({hf, ours, Rows::whole, form, When::first_of_pair});
  };
  const auto second = [&](std::string_view hf, std::string_view ours, Form form = Form::same) {
    names.push_back({hf, ours, Rows::whole, form, When::second_of_pair});
  };
  first("rwkv.blocks.{p}.ln1.*", "mixer_norm.*");
  first("rwkv.blocks.{p}.attention.time_mix_key", "mixer.mix_k", Form::plane);
  first("rwkv.blocks.{p}.attention.time_mix_value", "mixer.mix_v", Form::plane);
  first("rwkv.blocks.{p}.attention.time_mix_receptance", "mixer.mix_r", Form::plane);
  first("rwkv.blocks.{p}.attention.time_decay", "mixer.decay");
  first("rwkv.blocks.{p}.attention.time_first", "mixer.first");
  first("rwkv.blocks.{p}.attention.key.weight", "mixer.k.weight");
  first("rwkv.blocks.{p}.attention.value.weight", "mixer.v.weight");
  first("rwkv.blocks.{p}.attention.receptance.weight", "mixer.r.weight");
  first("rwkv.blocks.{p}.attention.output.weight", "mixer.o.weight");
  second("rwkv.blocks.{p}.ln2.*", "mixer_norm.*");
  second("rwkv.blocks.{p}.feed_forward.time_mix_key", "mixer.mix_k", Form::plane);
  second("rwkv.blocks.{p}.feed_forward.time_mix_receptance", "mixer.mix_r", Form::plane);
  second("rwkv.blocks.{p}.feed_forward.key.weight", "mixer.k.weight");
  second("rwkv.blocks.{p}.feed_forward.receptance.weight", "mixer.r.weight");
  second("rwkv.blocks.{p}.feed_forward.value.weight", "mixer.v.weight");
  return names;
}

}  // namespace

std::vector<Family> recurrent_kin() {
  return {{"recurrent_gemma", "RecurrentGemmaForCausalLM", recurrent_gemma, recurrent_gemma_names()},
          {"rwkv", "RwkvForCausalLM", rwkv, rwkv_names()}};
}

}  // namespace lamina::io::hf
