#include "lamina/io/hf/family.h"

namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

void phi(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {51200, 2048, 24, 32, {}, 2048});
  m.entry("head_dim", a.head_dim, {});
  m.constant(plain(m, d, "intermediate_size", 8192, "hidden_act", "gelu_new").bias, true);
  const double eps = layer_norm(m, d, "layer_norm_eps", 1e-5).eps;
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {10000.0, 0.5});
  m.constant(a.bias, {true, true, true, true});
  bool normed = !std::holds_alternative<NoQkNorm>(a.qk_norm);
  m.entry("qk_layernorm", normed, false);
  if (m.reading() && normed) a.qk_norm = PerHeadQkNorm{LayerNorm{.eps = eps}};
  m.constant(d.block.wiring, ParallelWiring{});
  m.constant(d.spec.head.bias, true);
}

NameMap phi_names() {
  return joined({{{"model.layers.{l}.input_layernorm.*", "norm.*"},
                  {"model.layers.{l}.self_attn.dense.*", "mixer.o.*"},
                  {"model.layers.{l}.self_attn.q_layernorm.*", "mixer.q_norm.*"},
                  {"model.layers.{l}.self_attn.k_layernorm.*", "mixer.k_norm.*"},
                  {"model.layers.{l}.mlp.fc1.*", "ffn.up.*"},
                  {"model.layers.{l}.mlp.fc2.*", "ffn.down.*"},
                  {"model.final_layernorm.*", "final_norm.*"}},
                 decoder_names(),
                 attention_names()});
}

void phi3(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {32064, 3072, 32, 32, {}, 4096});
  m.entry("head_dim", a.head_dim, {});
  gated(m, d.block.ffn, 8192);
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d, 32000);
  RopeKeys keys;
  keys.fraction = 1.0;
  keys.longrope_only = true;
  m.rope(d, keys);
  window_everywhere(m, d, {});
  m.only("attention_bias", {"false"}, "the family has no biases");
  m.only("mlp_bias", {"false"}, "the family has no biases");
  m.only("lm_head_bias", {"false"}, "the family has no biases");
  m.only("full_attn_mod", {"1"}, "the family's reader has no alternating layers");
  m.ignore({"interpolate_factor"});
}

NameMap phi3_names() {
  return joined({decoder_names(),
                 pre_norm_names(),
                 {{"model.layers.{l}.self_attn.qkv_proj.weight", "mixer.q.weight mixer.k.weight mixer.v.weight"},
                  {"model.layers.{l}.self_attn.o_proj.weight", "mixer.o.weight"},
                  {"model.layers.{l}.mlp.gate_up_proj.weight", "ffn.gate.weight ffn.up.weight"},
                  {"model.layers.{l}.mlp.down_proj.weight", "ffn.down.weight"}}});
}

}  // namespace

std::vector<Family> phi_kin() {
  return {
      {"phi", "PhiForCausalLM", phi, phi_names()},
      {"phi3", "Phi3ForCausalLM", phi3, phi3_names()},
  };
}

}  // namespace lamina::io::hf
