#include "lamina/io/hf/family_experts.h"

/// Mixture-of-experts families.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

void mixtral(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {32000, 4096, 32, 32, 8, 131072});
  m.entry("head_dim", a.head_dim, {});
  Moe& moe = gated_experts(m, d, {"num_local_experts|num_experts", 8, 2, "intermediate_size", 14336});
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.constant(moe.renormalise, true);
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {1000000.0});
  window_everywhere(m, d, {});
}

void qwen3_moe(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {151936, 2048, 24, 32, 4, 32768});
  m.entry("head_dim", a.head_dim, {});
  Moe& moe = gated_experts(m, d, {"num_experts|num_local_experts", 128, 8, "moe_intermediate_size", 768});
  dense_layers(m, d, moe, 6144);
  m.entry("norm_topk_prob", moe.renormalise, false);
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  sparse_steps(m, d);
  rms(m, d, "rms_norm_eps", 1e-6);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {});
  m.constant(a.qk_norm, PerHeadQkNorm{});
  attention_bias(m, a, false);
  switched_window(m, d, 4096);
  if (m.reading()) d.sliding.assign(static_cast<size_t>(d.n_layers), d.window.has_value());
  m.ignore({"max_window_layers"});
}

/// The first layers are dense, all others have experts.
void first_dense(ConfigMap& m, Draft& d, int64_t otherwise) {
  int64_t dense = 0;
  while (dense < d.n_layers && !m.reading() && d.dense[static_cast<size_t>(dense)]) ++dense;
  m.entry("first_k_dense_replace", dense, otherwise);
  for (int64_t i = 0; m.reading() && i < d.n_layers; ++i) d.dense.push_back(i < dense);
}

void deepseek_experts(ConfigMap& m, Draft& d) {
  Moe& moe = gated_experts(m, d, {"n_routed_experts|num_local_experts", 256, 8, "moe_intermediate_size", 2048});
  m.entry("n_shared_experts", moe.shared_experts, 1);
  m.entry("routed_scaling_factor", moe.weight_scale, 2.5);
  m.entry("norm_topk_prob", moe.renormalise, true);
  m.entry("n_group", moe.groups, 8);
  m.entry("topk_group", moe.top_groups, 4);
  m.constant(moe.score, RouterScore::sigmoid);
  m.constant(moe.selection_bias, true);
  dense_layers(m, d, moe, 18432);
  first_dense(m, d, 3);
  m.only("scoring_func", {"\"sigmoid\""}, "other scores of this family are not read");
  m.only("topk_method", {"\"noaux_tc\""}, "other choices of experts are not read");
  m.only("moe_layer_freq", {"1"}, "dense layers between layers of experts are not read");
  m.ignore({"ep_size", "aux_loss_alpha", "seq_aux", "num_nextn_predict_layers", "num_mtp_layers"});
}

/// Maps all keys except those of the experts and of the RoPE layout.
void deepseek_base(ConfigMap& m, Draft& d, const DecoderSizes& otherwise) {
  auto& a = m.as<Mla>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, otherwise.vocab_size);
  m.entry("hidden_size", d.spec.d_model, otherwise.d_model);
  layers(m, "num_hidden_layers", d, otherwise.n_layers);
  m.entry("num_attention_heads", a.n_heads, otherwise.n_heads);
  m.entry("max_position_embeddings", d.spec.context, otherwise.context);
  m.entry("q_lora_rank", a.q_lora_rank, 1536);
  m.entry("kv_lora_rank", a.kv_lora_rank, 512);
  m.entry("qk_nope_head_dim", a.qk_nope, 128);
  m.entry("qk_rope_head_dim", a.qk_rope, 64);
  m.entry("v_head_dim", a.v_head_dim, 128);
  m.flags("attention_bias", {&a.bias}, false);
  m.constant(a.norm_eps, 1e-6);
  rms(m, d, "rms_norm_eps", 1e-6);
  tied(m, d, false);
  padding(m, d);
  RopeKeys keys;
  keys.fraction_key = "";
  m.rope(d, keys);
  int64_t keys_heads = a.n_heads;  // every query head has its own key and value head
  m.entry("num_key_value_heads", keys_heads, a.n_heads);
  m.ignore({"head_dim", "qk_head_dim"});
}

void deepseek_v3(ConfigMap& m, Draft& d) {
  deepseek_base(m, d, {129280, 7168, 61, 128, {}, 4096});
  Rope& rope = m.need(d.rope);
  bool interleaved = rope.pairing == Pairing::interleaved;
  m.entry("rope_interleave", interleaved, true);
  m.constant(rope.pairing, interleaved ? Pairing::interleaved : Pairing::half_split);
  deepseek_experts(m, d);
}

NameMap deepseek_names() {
  return joined({{{"model.layers.{l}.self_attn.q_proj.*", "mixer.q.*"},
                  {"model.layers.{l}.self_attn.q_a_proj.*", "mixer.q_down.*"},
                  {"model.layers.{l}.self_attn.q_a_layernorm.*", "mixer.q_norm.*"},
                  {"model.layers.{l}.self_attn.q_b_proj.*", "mixer.q_up.*"},
                  {"model.layers.{l}.self_attn.kv_a_proj_with_mqa.*", "mixer.kv_down.*"},
                  {"model.layers.{l}.self_attn.kv_a_layernorm.*", "mixer.kv_norm.*"},
                  {"model.layers.{l}.self_attn.kv_b_proj.*", "mixer.kv_up.*"}},
                 expert_names()});
}

/// Experts chosen by sigmoid scores with a correction bias, plus shared experts. The attention is standard.
void corrected_experts(ConfigMap& m, Draft& d, bool renormalised, int64_t dense) {
  Moe& moe = gated_experts(m, d, {"n_routed_experts|num_local_experts", 128, 8, "moe_intermediate_size", 1408});
  m.entry("n_shared_experts", moe.shared_experts, 1);
  m.entry("routed_scaling_factor", moe.weight_scale, 1.0);
  m.entry("norm_topk_prob", moe.renormalise, renormalised);
  m.entry("n_group", moe.groups, 1);
  m.entry("topk_group", moe.top_groups, 1);
  m.constant(moe.score, RouterScore::sigmoid);
  m.constant(moe.selection_bias, true);
  dense_layers(m, d, moe, 10944);
  first_dense(m, d, dense);
  m.ignore({"num_nextn_predict_layers"});
}

void glm4_moe(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {151552, 4096, 46, 96, 8, 131072});
  m.entry("head_dim", a.head_dim, {});
  corrected_experts(m, d, true, 1);
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {10000.0, 0.5});
  m.flags("attention_bias", {&a.bias.q, &a.bias.k, &a.bias.v}, false);
  bool normed = !std::holds_alternative<NoQkNorm>(a.qk_norm);
  m.entry("use_qk_norm", normed, false);
  if (m.reading() && normed) a.qk_norm = PerHeadQkNorm{};
}

void dots1(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {152064, 4608, 62, 32, 32, 2048});
  m.entry("head_dim", a.head_dim, {});
  corrected_experts(m, d, false, 0);
  rms(m, d, "rms_norm_eps", 1e-6);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {});
  attention_bias(m, a, false);
  m.constant(a.qk_norm, PerHeadQkNorm{});
  m.entry("sliding_window", d.window, 4096);
  int64_t first = 62;
  if (m.reading()) m.entry("max_window_layers", first, 62);
  m.layer_types(d, [&](int64_t layer) { return d.window && layer >= first; });
}

void olmoe(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {50304, 2048, 16, 16, {}, 4096});
  Moe& moe = gated_experts(m, d, {"num_experts|num_local_experts", 64, 8, "intermediate_size", 2048});
  m.entry("norm_topk_prob", moe.renormalise, false);
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.01);
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d, 1);
  m.rope(d, {});
  attention_bias(m, a, false);
  m.constant(a.qk_norm, WholeQkNorm{});
  m.only("clip_qkv", {"null"}, "clipping after the norm of queries and keys is not read");
}

void granitemoe(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {32000, 4096, 32, 32, {}, 2048});
  Moe& moe = gated_experts(m, d, {"num_local_experts|num_experts", 8, 2, "intermediate_size", 11008});
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.constant(moe.score, RouterScore::softmax_of_chosen);
  rms(m, d, "rms_norm_eps", 1e-6);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {});
  attention_bias(m, a, false);
  granite_multipliers(m, d, a);
}

NameMap granitemoe_names() {
  return joined(
      {decoder_names(),
       attention_names(),
       pre_norm_names(),
       {{"model.layers.{l}.block_sparse_moe.router.layer.weight", "ffn.router.weight"},
        {"model.layers.{l}.block_sparse_moe.input_linear.weight", "ffn.experts.gate.weight ffn.experts.up.weight"},
        {"model.layers.{l}.block_sparse_moe.output_linear.weight", "ffn.experts.down.weight"}}});
}

/// Parameter names in memory in transformers, where they differ from the files.
NameMap granitemoe_parameters() {
  return {{"model.layers.{l}.block_sparse_moe.router.weight", "ffn.router.weight"},
          {"model.layers.{l}.block_sparse_moe.experts.gate_up_proj", "ffn.experts.gate.weight ffn.experts.up.weight"},
          {"model.layers.{l}.block_sparse_moe.experts.down_proj", "ffn.experts.down.weight"}};
}

/// Experts chosen by softmax scores. With expert groups, the score of a group is its best expert's score.
void deepseek_v2_experts(ConfigMap& m, Draft& d) {
  Moe& moe = gated_experts(m, d, {"n_routed_experts|num_local_experts", 64, 6, "moe_intermediate_size", 1407});
  m.entry("n_shared_experts", moe.shared_experts, 2);
  m.entry("routed_scaling_factor", moe.weight_scale, 1.0);
  std::string method = moe.groups > 1 ? "group_limited_greedy" : "greedy";
  m.entry("topk_method", method, "greedy");
  std::optional<int64_t> groups = moe.groups;
  std::optional<int64_t> top_groups = moe.top_groups;
  m.entry("n_group", groups, {});
  m.entry("topk_group", top_groups, {});
  if (m.reading() && method != "greedy") {
    if (method != "group_limited_greedy") m.fail("topk_method", "expected greedy or group_limited_greedy");
    moe.groups = groups.value_or(1);
    moe.top_groups = top_groups.value_or(1);
    moe.group_best = 1;
  }
  dense_layers(m, d, moe, 11008);
  first_dense(m, d, 0);
  m.only("norm_topk_prob", {"false"}, "renormalised weights of this family are not read");
  m.only("scoring_func", {"\"softmax\""}, "other scores of this family are not read");
  m.only("moe_layer_freq", {"1"}, "dense layers between layers of experts are not read");
  m.only("mlp_bias", {"false"}, "biases of its feed-forwards are not read");
  m.ignore({"ep_size", "aux_loss_alpha", "seq_aux"});
}

/// The default scaling if the file has none.
const RopeScaling& gpt_oss_scaling() {
  static const RopeScaling kScaling = YarnScaling{.factor = 32.0, .original_length = 4096, .truncate = false};
  return kScaling;
}

void deepseek_v2(ConfigMap& m, Draft& d) {
  deepseek_base(m, d, {32000, 4096, 32, 32, {}, 2048});
  m.constant(m.need(d.rope).pairing, Pairing::interleaved);
  deepseek_v2_experts(m, d);
}

void gpt_oss(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {201088, 2880, 36, 64, 8, 131072});
  m.entry("head_dim", a.head_dim, 64);
  attention_bias(m, a, true);
  m.constant(a.sinks, true);
  auto& moe = m.as<Moe>(d.block.ffn);
  auto& expert = m.as<GatedFfn>(moe.expert);
  m.entry("num_local_experts|num_experts", moe.experts, 128);
  m.entry("num_experts_per_tok|experts_per_token", moe.top_k, 4);
  m.entry("intermediate_size", expert.d_ff, 2880);
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.constant(moe.score, RouterScore::softmax_of_chosen);
  m.constant(moe.router_bias, true);
  m.constant(expert.bias, true);
  m.constant(expert.alpha, 1.702);
  m.constant(expert.limit, 7.0);
  m.constant(expert.up_offset, 1.0);
  m.only("hidden_act", {"\"silu\""}, "the family gates with its own function");
  m.only("swiglu_limit", {"7.0", "7"}, "the family cuts at 7");
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d);
  RopeKeys keys{150000.0};
  keys.scaling = &gpt_oss_scaling();
  m.rope(d, keys);
  m.entry("sliding_window", d.window, 128);
  m.layer_types(d, [](int64_t layer) { return layer % 2 == 0; });
  m.ignore({"initial_context_length"});
}

NameMap gpt_oss_names() {
  return joined(
      {decoder_names(),
       attention_names(),
       pre_norm_names(),
       {{"model.layers.{l}.self_attn.sinks", "mixer.sinks"},
        {"model.layers.{l}.mlp.router.*", "ffn.router.*"},
        {"model.layers.{l}.mlp.experts.gate_up_proj", "ffn.experts.gate.weight ffn.experts.up.weight", Rows::single,
         Form::transposed},
        {"model.layers.{l}.mlp.experts.gate_up_proj_bias", "ffn.experts.gate.bias ffn.experts.up.bias", Rows::single},
        {"model.layers.{l}.mlp.experts.down_proj", "ffn.experts.down.weight", Rows::whole, Form::transposed},
        {"model.layers.{l}.mlp.experts.down_proj_bias", "ffn.experts.down.bias"}}});
}

}  // namespace

Moe& gated_experts(ConfigMap& m, Draft& d, const ExpertKeys& keys) {
  auto& moe = m.as<Moe>(d.block.ffn);
  auto& expert = m.as<GatedFfn>(moe.expert);
  m.entry(keys.count_keys, moe.experts, keys.count);
  m.entry("num_experts_per_tok", moe.top_k, keys.top_k);
  m.entry(keys.width_key, expert.d_ff, keys.width);
  m.entry("hidden_act", expert.gate, "silu");
  return moe;
}

void dense_layers(ConfigMap& m, Draft& d, const Moe& moe, int64_t d_ff, std::string_view key) {
  if (!d.dense_ffn.d_ff) d.dense_ffn.d_ff = d_ff;  // the key must be written even if no layer is dense
  m.entry(key, d.dense_ffn.d_ff, d_ff);
  m.constant(d.dense_ffn.gate, std::get<GatedFfn>(moe.expert).gate);
}

void sparse_steps(ConfigMap& m, Draft& d) {
  m.layer_numbers("mlp_only_layers", d, d.dense);
  int64_t step = 1;
  m.entry("decoder_sparse_step", step, 1);
  if (step < 1) m.fail("decoder_sparse_step", "expected a positive number");
  for (int64_t i = 0; m.reading() && i < d.n_layers; ++i) {
    if ((i + 1) % step != 0) d.dense[static_cast<size_t>(i)] = true;
  }
}

NameMap mixtral_names() {
  return joined({decoder_names(),
                 attention_names(),
                 pre_norm_names(),
                 {{"model.layers.{l}.block_sparse_moe.gate.weight", "ffn.router.weight"},
                  {"model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight", "ffn.experts.gate.weight"},
                  {"model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight", "ffn.experts.up.weight"},
                  {"model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight", "ffn.experts.down.weight"}}});
}

NameMap expert_names() {
  return joined({decoder_names(),
                 attention_names(),
                 gated_names(),
                 pre_norm_names(),
                 {{"model.layers.{l}.mlp.gate.weight", "ffn.router.weight"},
                  {"model.layers.{l}.mlp.gate.e_score_correction_bias", "ffn.selection_bias"},
                  {"model.layers.{l}.mlp.experts.{e}.gate_proj.weight", "ffn.experts.gate.weight"},
                  {"model.layers.{l}.mlp.experts.{e}.up_proj.weight", "ffn.experts.up.weight"},
                  {"model.layers.{l}.mlp.experts.{e}.down_proj.weight", "ffn.experts.down.weight"},
                  {"model.layers.{l}.mlp.shared_experts.gate_proj.weight", "ffn.shared.gate.weight"},
                  {"model.layers.{l}.mlp.shared_experts.up_proj.weight", "ffn.shared.up.weight"},
                  {"model.layers.{l}.mlp.shared_experts.down_proj.weight", "ffn.shared.down.weight"}}});
}

NameMap joined_expert_names() {
  return {{"model.layers.{l}.mlp.gate.weight", "ffn.router.weight"},
          {"model.layers.{l}.mlp.experts.gate_up_proj", "ffn.experts.gate.weight ffn.experts.up.weight"},
          {"model.layers.{l}.mlp.experts.down_proj", "ffn.experts.down.weight"}};
}

std::vector<Family> expert_kin() {
  return {
      {"mixtral", "MixtralForCausalLM", mixtral, mixtral_names(), true, false, joined_expert_names()},
      {"qwen3_moe", "Qwen3MoeForCausalLM", qwen3_moe, expert_names(), true, false, joined_expert_names()},
      {"deepseek_v3", "DeepseekV3ForCausalLM", deepseek_v3, deepseek_names(), true, true, joined_expert_names()},
      {"gpt_oss", "GptOssForCausalLM", gpt_oss, gpt_oss_names()},
      {"deepseek_v2", "DeepseekV2ForCausalLM", deepseek_v2, deepseek_names(), true, false, joined_expert_names()},
      {"glm4_moe", "Glm4MoeForCausalLM", glm4_moe, expert_names(), true, true, joined_expert_names()},
      {"dots1", "Dots1ForCausalLM", dots1, expert_names(), true, false, joined_expert_names()},
      {"olmoe", "OlmoeForCausalLM", olmoe, expert_names(), true, false, joined_expert_names()},
      {"granitemoe", "GraniteMoeForCausalLM", granitemoe, granitemoe_names(), true, false, granitemoe_parameters()},
  };
}

}  // namespace lamina::io::hf
