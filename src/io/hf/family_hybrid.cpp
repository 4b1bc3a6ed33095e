#include <algorithm>
#include <cmath>
#include <utility>

#include "lamina/io/hf/family.h"

/// Decoders whose layers alternate between attention and a recurrence.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

/// The mixer of the layers without attention, set to type M.
template <class M>
M& recurrence(ConfigMap& m, Draft& d) {
  return m.as<M>(m.need(d.other_mixer));
}

/// Which layers have attention, for keys that list these layers.
std::vector<bool> attention_layers(const Draft& d) {
  std::vector<bool> layers = d.other;
  layers.flip();
  return layers;
}

/// Maps hidden_act, which must be silu: the state space layers' gates and convolutions use the same key.
void silu_everywhere(ConfigMap& m, GatedFfn& f) {
  m.entry("hidden_act", f.gate, "silu");
  if (m.reading() && f.gate != Gate::swiglu) {
    m.fail("hidden_act", "expected silu: the state space layers use it, too, and have no other function here");
  }
}

/// Maps mamba_expand, the inner width divided by d_model. It must be an integer.
void expansion(ConfigMap& m, double& expand) {
  auto whole = static_cast<int64_t>(expand);
  m.entry("mamba_expand", whole, 2);
  m.constant(expand, static_cast<double>(whole));
}

Mamba& normed_mamba(ConfigMap& m, Draft& d) {
  Mamba& mamba = recurrence<Mamba>(m, d);
  m.entry("mamba_d_state", mamba.state, 16);
  m.entry("mamba_d_conv", mamba.conv, 4);
  expansion(m, mamba.expand);
  m.number_or_auto("mamba_dt_rank", mamba.dt_rank);
  m.entry("mamba_conv_bias", mamba.conv_bias, true);
  m.entry("mamba_proj_bias", mamba.bias, false);
  m.constant(mamba.norm, d.spec.norm);
  return mamba;
}

void mamba2_sizes(ConfigMap& m, Draft& d, Mamba2& mamba) {
  m.entry("mamba_d_state", mamba.state, 256);
  m.entry("mamba_d_conv", mamba.conv, 4);
  m.entry("mamba_n_groups", mamba.groups, 1);
  m.entry("mamba_chunk_size", mamba.chunk, 256);
  m.entry("mamba_conv_bias", mamba.conv_bias, true);
  m.entry("mamba_proj_bias", mamba.bias, false);
  m.entry("time_step_min", mamba.dt_min, 0.001);
  m.entry("time_step_max", mamba.dt_max, 0.1);
  m.limits("time_step_limit", mamba.dt_low, mamba.dt_high);
  m.constant(mamba.norm_eps, m.as<RmsNorm>(d.spec.norm).eps);
  expansion(m, mamba.expand);
  const double width =
      mamba.d_inner ? static_cast<double>(*mamba.d_inner) : mamba.expand * static_cast<double>(d.spec.d_model);
  int64_t heads = mamba.head_dim > 0 ? static_cast<int64_t>(width) / mamba.head_dim : 0;
  m.entry("mamba_n_heads", heads, 128);
  std::optional<int64_t> head_dim = mamba.head_dim;
  m.number_or_auto("mamba_d_head", head_dim);
  if (!m.reading()) return;
  if (heads < 1) m.fail("mamba_n_heads", str(heads, ", expected a positive number"));
  mamba.head_dim = head_dim.value_or(static_cast<int64_t>(width) / heads);
  if (static_cast<double>(heads) * static_cast<double>(mamba.head_dim) != width) {
    m.fail("mamba_n_heads", str(heads, " heads of ", mamba.head_dim, " are not the ", width, " channels"));
  }
}

/// Jamba: attention in every `attn_layer_period`-th layer and experts in every `expert_layer_period`-th, each from its
/// own offset.
void jamba(ConfigMap& m, Draft& d) {
  decoder(m, d, {65536, 4096, 32, 32, 8, 262144});
  rms(m, d, "rms_norm_eps", 1e-6);
  tied(m, d, false);
  padding(m, d, 0);
  normed_mamba(m, d);
  auto& moe = m.as<Moe>(d.block.ffn);
  auto& expert = m.as<GatedFfn>(moe.expert);
  if (!m.reading() && !d.has_experts) {
    moe.experts = 1;
    expert = d.dense_ffn;
  }
  m.entry("num_experts|num_local_experts", moe.experts, 16);
  m.entry("num_experts_per_tok", moe.top_k, 2);
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.entry("intermediate_size", expert.d_ff, 14336);
  silu_everywhere(m, expert);
  m.constant(d.dense_ffn, expert);
  std::vector<bool> attention = attention_layers(d);
  m.every("attn_layer_period", "attn_layer_offset", d, attention, {8, 4});
  std::vector<bool> sparse = d.dense;
  sparse.flip();
  m.every("expert_layer_period", "expert_layer_offset", d, sparse, {2, 1});
  if (m.reading()) {
    attention.flip();
    d.other = std::move(attention);
    if (moe.experts == 1) sparse.assign(sparse.size(), false);
    sparse.flip();
    d.dense = std::move(sparse);
  }
  m.only("sliding_window", {"null"}, "windows of this family are not read");
  m.ignore({"use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep",
            "calc_logits_for_entire_prompt", "mamba_inner_layernorms", "n_ctx"});
}

/// Tensor names of Mamba layers and attention that all hybrid families share.
NameMap hybrid_names() {
  return {{"model.layers.{l}.mamba.in_proj.*", "mixer.in.*"},
          {"model.layers.{l}.mamba.conv1d.*", "mixer.conv.*", Rows::whole, Form::conv},
          {"model.layers.{l}.mamba.x_proj.weight", "mixer.x.weight"},
          {"model.layers.{l}.mamba.dt_proj.*", "mixer.dt.*"},
          {"model.layers.{l}.mamba.dt_layernorm.weight", "mixer.dt_norm.weight"},
          {"model.layers.{l}.mamba.b_layernorm.weight", "mixer.b_norm.weight"},
          {"model.layers.{l}.mamba.c_layernorm.weight", "mixer.c_norm.weight"},
          {"model.layers.{l}.mamba.dt_bias", "mixer.dt_bias"},
          {"model.layers.{l}.mamba.A_log", "mixer.a_log"},
          {"model.layers.{l}.mamba.D", "mixer.d"},
          {"model.layers.{l}.mamba.norm.weight", "mixer.norm.weight"},
          {"model.layers.{l}.mamba.out_proj.*", "mixer.out.*"}};
}

/// Tensor names of families that call the feed-forward feed_forward, its norm pre_ff_layernorm, and the last norm
/// final_layernorm.
NameMap feed_forward_names() {
  return {{"model.final_layernorm.*", "final_norm.*"},
          {"model.layers.{l}.input_layernorm.*", "mixer_norm.*"},
          {"model.layers.{l}.pre_ff_layernorm.*", "ffn_norm.*"},
          {"model.layers.{l}.feed_forward.gate_proj.*", "ffn.gate.*"},
          {"model.layers.{l}.feed_forward.up_proj.*", "ffn.up.*"},
          {"model.layers.{l}.feed_forward.down_proj.*", "ffn.down.*"}};
}

NameMap jamba_names() {
  return joined({feed_forward_names(),
                 decoder_names(),
                 attention_names(),
                 hybrid_names(),
                 {{"model.layers.{l}.feed_forward.router.weight", "ffn.router.weight"},
                  {"model.layers.{l}.feed_forward.experts.{e}.gate_proj.weight", "ffn.experts.gate.weight"},
                  {"model.layers.{l}.feed_forward.experts.{e}.up_proj.weight", "ffn.experts.up.weight"},
                  {"model.layers.{l}.feed_forward.experts.{e}.down_proj.weight", "ffn.experts.down.weight"}}});
}

/// Names in memory in transformers, which packs all experts into one tensor.
NameMap jamba_parameters() {
  return {{"model.layers.{l}.feed_forward.experts.gate_up_proj", "ffn.experts.gate.weight ffn.experts.up.weight"},
          {"model.layers.{l}.feed_forward.experts.down_proj", "ffn.experts.down.weight"}};
}

void bamba(ConfigMap& m, Draft& d) {
  const auto [a, f] =
      gated_decoder(m, d, {{128000, 4096, 32, 32, 8, 262144}, {}, 14336, 1e-5, false, 0, {10000.0, 0.5}});
  silu_everywhere(m, f);
  attention_bias(m, a, false);
  m.flags("mlp_bias", {&f.bias}, false);
  mamba2_sizes(m, d, recurrence<Mamba2>(m, d));
  std::vector<bool> attention = attention_layers(d);
  if (m.reading()) attention.clear();
  m.layer_numbers("attn_layer_indices", d, attention);
  attention.flip();
  m.constant(d.other, attention);
  m.ignore({"num_logits_to_keep", "z_loss_coefficient", "attn_rotary_emb"});
}

NameMap bamba_names() { return joined({feed_forward_names(), decoder_names(), attention_names(), hybrid_names()}); }

/// Experts plus a shared feed-forward. A model without experts has only the shared one.
void granite_feed_forward(ConfigMap& m, Draft& d) {
  Moe moe = d.has_experts ? std::get<Moe>(d.block.ffn) : Moe{};
  auto& expert = m.as<GatedFfn>(moe.expert);
  GatedFfn shared = d.dense_ffn;
  if (d.has_experts) shared.d_ff = moe.shared_d_ff;
  if (!m.reading() && !d.has_experts) {
    moe.experts = 0;
    expert = shared;
  }
  m.entry("num_local_experts|num_experts", moe.experts, 8);
  m.entry("num_experts_per_tok", moe.top_k, 2);
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.entry("intermediate_size", expert.d_ff, 11008);
  m.entry("shared_intermediate_size", shared.d_ff, 1024);
  silu_everywhere(m, expert);
  if (!m.reading()) return;
  moe.score = RouterScore::softmax_of_chosen;
  moe.shared_experts = 1;
  moe.shared_d_ff = shared.d_ff;
  d.block.ffn = moe.experts == 0 ? Ffn(shared) : Ffn(moe);
}

void granitemoehybrid(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {32000, 4096, 32, 32, {}, 2048});
  granite_feed_forward(m, d);
  rms(m, d, "rms_norm_eps", 1e-6);
  tied(m, d, false);
  padding(m, d);
  bool rotates = d.rope.has_value();
  m.named("position_embedding_type", rotates, "rope", "nope");
  if (m.reading() || rotates) m.rope(d, {});
  if (!rotates) d.rope.reset();
  attention_bias(m, a, false);
  granite_multipliers(m, d, a);
  mamba2_sizes(m, d, recurrence<Mamba2>(m, d));
  m.layer_kinds("layer_types|layers_block_type", d, "linear_attention|mamba", "full_attention|attention",
                [](int64_t /*layer*/) { return true; });
  m.ignore({"normalization_function", "init_method", "rope_theta", "logits_to_keep"});
}

NameMap granitemoehybrid_names() {
  return joined(
      {decoder_names(),
       attention_names(),
       pre_norm_names(),
       hybrid_names(),
       {{"model.layers.{l}.block_sparse_moe.router.layer.weight", "ffn.router.weight"},
        {"model.layers.{l}.block_sparse_moe.input_linear.weight", "ffn.experts.gate.weight ffn.experts.up.weight"},
        {"model.layers.{l}.block_sparse_moe.output_linear.weight", "ffn.experts.down.weight"},
        {"model.layers.{l}.shared_mlp.input_linear.weight", "ffn.shared.gate.weight ffn.shared.up.weight"},
        {"model.layers.{l}.shared_mlp.output_linear.weight", "ffn.shared.down.weight"},
        {"model.layers.{l}.shared_mlp.input_linear.weight", "ffn.gate.weight ffn.up.weight"},
        {"model.layers.{l}.shared_mlp.output_linear.weight", "ffn.down.weight"}}});
}

/// Parameter names in memory in transformers, where they differ from the files.
NameMap granitemoehybrid_parameters() {
  return {{"model.layers.{l}.block_sparse_moe.router.weight", "ffn.router.weight"},
          {"model.layers.{l}.block_sparse_moe.experts.gate_up_proj", "ffn.experts.gate.weight ffn.experts.up.weight"},
          {"model.layers.{l}.block_sparse_moe.experts.down_proj", "ffn.experts.down.weight"}};
}

/// The key multiplier that gives this attention scale: dividing it by `root` = sqrt(head_dim) restores `scale` exactly,
/// if possible.
double key_factor(double scale, double root) {
  const double near = scale * root;
  for (const double candidate : {near, std::nextafter(near, 0.0), std::nextafter(near, 2 * near)}) {
    if (candidate / root == scale) return candidate;
  }
  return near;
}

/// Maps the muP (maximal update parametrization) multipliers.
void falcon_h1_multipliers(ConfigMap& m, Draft& d, AttentionMamba2& both, GatedFfn& f) {
  Attention& a = both.attention;
  const int64_t width = a.head_dim.value_or(a.n_heads > 0 ? d.spec.d_model / a.n_heads : 1);
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(width, 1)));
  double keys = a.scale ? key_factor(*a.scale, root) : 1.0;
  m.entry("key_multiplier", keys, 1.0);
  m.constant(a.scale, keys / root);
  m.entry("attention_in_multiplier", both.attention_in, 1.0);
  m.entry("attention_out_multiplier", both.attention_out, 1.0);
  m.entry("ssm_in_multiplier", both.mamba2_in, 1.0);
  m.entry("ssm_out_multiplier", both.mamba2_out, 1.0);
  std::vector<double>& parts = both.mamba2.in_scales;
  m.factors("ssm_multipliers", parts, 5);
  if (std::count(parts.begin(), parts.end(), 1.0) == 5) parts.clear();
  std::vector<double> feed{f.gate_scale, f.out_scale};
  m.factors("mlp_multipliers", feed, 2);
  if (m.reading() && !feed.empty()) {
    f.gate_scale = feed[0];
    f.out_scale = feed[1];
  }
  m.entry("embedding_multiplier", m.as<ConstantScale>(d.spec.embedding.scale).value, 1.0);
  m.entry("lm_head_multiplier", m.as<ConstantScale>(d.spec.head.scale).value, 1.0);
}

/// Attention and Mamba-2 side by side in every layer.
void falcon_h1(ConfigMap& m, Draft& d) {
  auto& both = m.as<AttentionMamba2>(d.block.mixer);
  Attention& a = both.attention;
  Mamba2& mamba = both.mamba2;
  m.entry("vocab_size", d.spec.vocab_size, 128000);
  m.entry("hidden_size", d.spec.d_model, 4096);
  layers(m, "num_hidden_layers", d, 32);
  m.entry("num_attention_heads", a.n_heads, 32);
  m.entry("num_key_value_heads", a.n_kv_heads, 8);
  m.entry("head_dim", a.head_dim, {});
  m.entry("max_position_embeddings", d.spec.context, 8192);
  GatedFfn& f = gated(m, d.block.ffn, 14336);
  silu_everywhere(m, f);
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d, 0);
  m.rope(d, {});
  attention_bias(m, a, false);
  m.flags("mlp_bias", {&f.bias}, false);
  m.entry("mamba_d_ssm", mamba.d_inner, 1024);
  mamba2_sizes(m, d, mamba);
  bool projected = mamba.bias;
  m.entry("projectors_bias", projected, false);
  if (m.reading() && projected != mamba.bias) {
    m.fail("projectors_bias", "differs from mamba_proj_bias; one bias without the other is not read");
  }
  bool normed = mamba.norm != GatedNorm::none;
  bool before = mamba.norm != GatedNorm::after_gate;
  m.entry("mamba_rms_norm", normed, false);
  m.entry("mamba_norm_before_gate", before, true);
  m.constant(mamba.norm, !normed ? GatedNorm::none : before ? GatedNorm::before_gate : GatedNorm::after_gate);
  m.constant(mamba.norm_groups, normed ? mamba.groups : 1);
  falcon_h1_multipliers(m, d, both, f);
  m.ignore({"num_logits_to_keep", "mamba_use_mlp", "layers_block_type", "layer_types", "attn_layer_indices"});
}

/// Maps the feed-forward width. If block_auto_adjust_ff_dim is set, LFM2 takes 2/3 of the key's value, multiplies it by
/// block_ffn_dim_multiplier, and rounds up to a multiple of block_multiple_of.
void adjusted_width(ConfigMap& m, GatedFfn& f) {
  m.entry("intermediate_size|block_ff_dim", f.d_ff, 12288);
  bool adjusted = false;
  int64_t multiple = 256;
  std::optional<double> factor = 1.0;
  m.entry("block_auto_adjust_ff_dim", adjusted, true);
  m.entry("block_multiple_of", multiple, 256);
  m.entry("block_ffn_dim_multiplier", factor, 1.0);
  if (!m.reading() || !adjusted || !f.d_ff) return;
  if (multiple < 1) m.fail("block_multiple_of", str(multiple, ", expected a positive number"));
  const auto width = static_cast<int64_t>(factor.value_or(1.0) * static_cast<double>(2 * *f.d_ff / 3));
  f.d_ff = (width + multiple - 1) / multiple * multiple;
}

/// Gated short convolutions and attention with QK norm.
void lfm2(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {65536, 2560, 32, 32, 8, 128000});
  adjusted_width(m, m.as<GatedFfn>(d.block.ffn));
  rms(m, d, "norm_eps", 1e-5);
  m.entry("tie_word_embeddings|tie_embedding", d.spec.head.tied, true);
  padding(m, d, 0);
  m.rope(d, {1000000.0, {}, "rope_theta|theta"});
  m.constant(a.qk_norm, PerHeadQkNorm{});
  auto& conv = recurrence<ShortConv>(m, d);
  m.entry("conv_L_cache", conv.conv, 3);
  m.entry("conv_bias", conv.bias, false);
  std::vector<bool> attention;
  if (m.reading()) m.layer_numbers("full_attn_idxs", d, attention);
  const bool listed = std::find(attention.begin(), attention.end(), true) != attention.end();
  m.layer_kinds("layer_types", d, "conv", "full_attention",
                [&](int64_t layer) { return listed && !attention[static_cast<size_t>(layer)]; });
  m.ignore({"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu",
            "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "use_pos_enc"});
}

NameMap lfm2_names() {
  return joined({{{"model.embedding_norm.*", "final_norm.*"},
                  {"model.layers.{l}.operator_norm.*", "mixer_norm.*"},
                  {"model.layers.{l}.ffn_norm.*", "ffn_norm.*"},
                  {"model.layers.{l}.conv.in_proj.*", "mixer.in.*"},
                  {"model.layers.{l}.conv.conv.*", "mixer.conv.*", Rows::whole, Form::conv},
                  {"model.layers.{l}.conv.out_proj.*", "mixer.out.*"},
                  {"model.layers.{l}.self_attn.out_proj.*", "mixer.o.*"},
                  {"model.layers.{l}.self_attn.q_layernorm.*", "mixer.q_norm.*"},
                  {"model.layers.{l}.self_attn.k_layernorm.*", "mixer.k_norm.*"},
                  {"model.layers.{l}.feed_forward.w1.*", "ffn.gate.*"},
                  {"model.layers.{l}.feed_forward.w3.*", "ffn.up.*"},
                  {"model.layers.{l}.feed_forward.w2.*", "ffn.down.*"}},
                 decoder_names(),
                 attention_names()});
}

}  // namespace

std::vector<Family> hybrid_kin() {
  return {
      {"jamba", "JambaForCausalLM", jamba, jamba_names(), true, false, jamba_parameters()},
      {"bamba", "BambaForCausalLM", bamba, bamba_names()},
      {"granitemoehybrid", "GraniteMoeHybridForCausalLM", granitemoehybrid, granitemoehybrid_names(), true, false,
       granitemoehybrid_parameters()},
      {"falcon_h1", "FalconH1ForCausalLM", falcon_h1, bamba_names()},
      {"lfm2", "Lfm2ForCausalLM", lfm2, lfm2_names()},
  };
}

}  // namespace lamina::io::hf
