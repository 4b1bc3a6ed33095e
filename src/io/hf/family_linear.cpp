#include "lamina/io/hf/family_experts.h"

/// Decoders whose layers alternate between attention and linear attention.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

/// One factor under several keys, which must agree.
void same_factor(ConfigMap& m, std::initializer_list<std::string_view> keys, double& factor) {
  const double first = factor;
  bool known = false;
  for (const std::string_view key : keys) {
    double value = first;
    m.entry(key, value, 1.0);
    if (m.reading() && known && value != factor) {
      m.fail(key,
             str(value, " differs from ", *keys.begin(), " ", factor, "; a factor per kind of sublayer is not read"));
    }
    if (m.reading()) factor = value;
    known = true;
  }
}

/// Lightning attention and attention, experts in every layer, and a residual stream that is normed before each
/// sublayer.
void minimax(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {32000, 4096, 32, 32, 8, 131072});
  m.entry("head_dim", a.head_dim, {});
  Moe& moe = gated_experts(m, d, {"num_local_experts|num_experts", 8, 2, "intermediate_size", 14336});
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.constant(moe.renormalise, true);
  if (m.reading() && std::get<GatedFfn>(moe.expert).gate != Gate::swiglu) {
    m.fail("hidden_act", "expected silu: lightning attention uses it, too, and has no other function here");
  }
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {1000000.0, 1.0});
  window_everywhere(m, d, {});
  auto& lightning = m.as<Lightning>(m.need(d.other_mixer));
  m.entry("block_size", lightning.chunk, 256);
  m.constant(lightning.n_heads, a.n_heads);
  m.constant(lightning.head_dim, a.head_dim);
  m.layer_kinds("layer_types", d, "linear_attention", "full_attention", [](int64_t layer) { return layer % 2 == 1; });
  m.constant(d.block.placement, Placement::residual_after_norm);
  same_factor(m, {"mlp_alpha_factor", "full_attn_alpha_factor", "linear_attn_alpha_factor"}, d.block.skip_scale);
  same_factor(m, {"mlp_beta_factor", "full_attn_beta_factor", "linear_attn_beta_factor"}, d.block.residual_scale);
}

NameMap minimax_names() {
  return joined(
      {{{"model.layers.{l}.self_attn.qkv_proj.weight", "mixer.q.weight mixer.k.weight mixer.v.weight", Rows::kv_heads,
         Form::same, When::no_attention},
        {"model.layers.{l}.self_attn.out_proj.weight", "mixer.o.weight", Rows::whole, Form::same, When::no_attention},
        {"model.layers.{l}.self_attn.output_gate.weight", "mixer.gate.weight"},
        {"model.layers.{l}.self_attn.norm.weight", "mixer.norm.weight"}},
       mixtral_names()});
}

}  // namespace

std::vector<Family> linear_kin() {
  return {{"minimax", "MiniMaxForCausalLM", minimax, minimax_names(), true, false, joined_expert_names()}};
}

}  // namespace lamina::io::hf
