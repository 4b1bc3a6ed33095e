#include "lamina/io/hf/family_experts.h"

/// Decoders whose layers alternate between attention and linear attention.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

/// Maps one factor that the file holds under several keys. They must agree.
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

/// MiniMax: layers with lightning attention or softmax attention, and experts in every layer. The residual stream
/// itself is normalized before each sublayer.
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

/// Qwen3-Next: the gated delta rule in three of four layers, gated attention in the fourth. Experts plus a gated shared
/// expert.
void qwen3_next(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {151936, 2048, 48, 16, 2, 32768});
  m.entry("head_dim", a.head_dim, 256);
  Moe& moe = gated_experts(m, d, {"num_experts|num_local_experts", 512, 10, "moe_intermediate_size", 512});
  if (m.reading() && std::get<GatedFfn>(moe.expert).gate != Gate::swiglu) {
    m.fail("hidden_act", "expected silu: the delta rule's layers use it, too, and have no other function here");
  }
  dense_layers(m, d, moe, 5632);
  m.entry("norm_topk_prob", moe.renormalise, true);
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.constant(moe.shared_experts, 1);
  m.entry("shared_expert_intermediate_size", moe.shared_d_ff, 512);
  m.constant(moe.shared_gate, true);
  sparse_steps(m, d);
  auto& norm = m.as<RmsNorm>(d.spec.norm);
  m.entry("rms_norm_eps", norm.eps, 1e-6);
  m.constant(norm.offset, 1.0);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {10000.0, 0.25});
  m.only("attention_bias", {"false"}, "biases of its gated attention are not read");
  m.constant(a.qk_norm, PerHeadQkNorm{});
  m.constant(a.gate, true);
  auto& delta = m.as<GatedDelta>(m.need(d.other_mixer));
  m.entry("linear_conv_kernel_dim", delta.conv, 4);
  m.entry("linear_key_head_dim", delta.key_dim, 128);
  m.entry("linear_value_head_dim", delta.value_dim, 128);
  m.entry("linear_num_key_heads", delta.n_key_heads, 16);
  m.entry("linear_num_value_heads", delta.n_heads, 32);
  m.constant(delta.norm_eps, norm.eps);
  int64_t interval = 4;
  if (m.reading()) m.entry("full_attention_interval", interval, 4);
  if (interval < 1) m.fail("full_attention_interval", "expected a positive number");
  m.layer_kinds("layer_types", d, "linear_attention", "full_attention",
                [&](int64_t layer) { return (layer + 1) % interval != 0; });
}

NameMap qwen3_next_names() {
  NameMap names;
  const auto delta = [&](std::string_view hf, std::string_view ours, Rows rows = Rows::whole, Form form = Form::same) {
    names.push_back({hf, ours, rows, form, When::no_attention});
  };
  delta("model.layers.{l}.linear_attn.in_proj_qkvz.weight",
        "mixer.q.weight mixer.k.weight mixer.v.weight mixer.z.weight", Rows::kv_heads);
  delta("model.layers.{l}.linear_attn.in_proj_ba.weight", "mixer.b.weight mixer.a.weight", Rows::kv_heads);
  delta("model.layers.{l}.linear_attn.conv1d.weight", "mixer.conv.weight", Rows::whole, Form::conv);
  delta("model.layers.{l}.linear_attn.dt_bias", "mixer.dt_bias");
  delta("model.layers.{l}.linear_attn.A_log", "mixer.a_log");
  delta("model.layers.{l}.linear_attn.norm.weight", "mixer.norm.weight");
  delta("model.layers.{l}.linear_attn.out_proj.weight", "mixer.o.weight");
  names.push_back({"model.layers.{l}.self_attn.q_proj.weight", "mixer.q.weight mixer.gate.weight", Rows::heads});
  return joined({names, shared_expert_names()});
}

/// Prefix of the multi-token prediction heads that files may hold. They are skipped.
constexpr std::string_view kNextTokenHeads[] = {"mtp."};

}  // namespace

std::vector<Family> linear_kin() {
  return {
      {"minimax", "MiniMaxForCausalLM", minimax, minimax_names(), true, false, joined_expert_names()},
      {"qwen3_next", "Qwen3NextForCausalLM", qwen3_next, qwen3_next_names(), true, false, joined_expert_names(),
       kNextTokenHeads},
  };
}

}  // namespace lamina::io::hf
