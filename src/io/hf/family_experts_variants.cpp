#include "lamina/io/hf/family_experts.h"

/// Mixture-of-experts families with their own router or with a gated shared expert.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

/// Qwen2-MoE: a sigmoid gate scales the output of the shared expert.
void qwen2_moe(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {151936, 2048, 24, 16, 16, 32768});
  Moe& moe = gated_experts(m, d, {"num_experts|num_local_experts", 60, 4, "moe_intermediate_size", 1408});
  dense_layers(m, d, moe, 5632);
  m.entry("norm_topk_prob", moe.renormalise, false);
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.constant(moe.shared_experts, 1);
  m.entry("shared_expert_intermediate_size", moe.shared_d_ff, 5632);
  m.constant(moe.shared_gate, true);
  sparse_steps(m, d);
  rms(m, d, "rms_norm_eps", 1e-6);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {});
  m.flags("qkv_bias", {&a.bias.q, &a.bias.k, &a.bias.v}, true);
  switched_window(m, d, 4096);
  int64_t below = 28;
  if (m.reading()) m.entry("max_window_layers", below, 28);
  m.layer_types(d, [&](int64_t layer) { return d.window && layer < below && layer % 2 == 0; });
}

/// Layer norms with biases. SparseMixer routing: experts are chosen one after the other.
void phimoe(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {32064, 4096, 32, 32, 8, 131072});
  m.entry("head_dim", a.head_dim, {});
  Moe& moe = gated_experts(m, d, {"num_local_experts|num_experts", 16, 2, "intermediate_size", 6400});
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.constant(moe.score, RouterScore::softmax_of_near);
  double jitter = moe.near / 2;
  m.entry("router_jitter_noise", jitter, 0.01);
  m.constant(moe.near, 2 * jitter);
  layer_norm(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d);
  RopeKeys keys{1000000.0};
  keys.mscales = true;
  m.rope(d, keys);
  attention_bias(m, a, false);
  m.entry("lm_head_bias", d.spec.head.bias, false);
  window_everywhere(m, d, {});
  m.ignore({"input_jitter_noise", "original_max_position_embeddings"});
}

NameMap phimoe_parameters() {
  return {{"model.layers.{l}.mlp.router.weight", "ffn.router.weight"},
          {"model.layers.{l}.mlp.experts.gate_up_proj", "ffn.experts.gate.weight ffn.experts.up.weight"},
          {"model.layers.{l}.mlp.experts.down_proj", "ffn.experts.down.weight"}};
}

/// Layers with RoPE attend within chunks and normalize queries and keys. Layers without RoPE attend to all tokens and
/// scale queries by position. A router weight multiplies the input of its expert, not the output.
void llama4_text(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {202048, 5120, 48, 40, 8, 131072});
  m.entry("head_dim", a.head_dim, 128);
  Moe& moe = gated_experts(m, d, {"num_local_experts|num_experts", 16, 1, "intermediate_size", 8192});
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.constant(moe.score, RouterScore::sigmoid);
  m.constant(moe.weigh_inputs, true);
  m.constant(moe.shared_experts, 1);
  dense_layers(m, d, moe, 16384, "intermediate_size_mlp");
  m.expert_layers(d);
  rms(m, d, "rms_norm_eps", 1e-5);
  const double eps = std::get<RmsNorm>(d.spec.norm).eps;
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {500000.0});
  m.constant(m.need(d.rope).pairing, Pairing::interleaved);
  attention_bias(m, a, false);
  int64_t interval = 4;
  if (m.reading()) m.entry("no_rope_layer_interval", interval, 4);
  if (interval < 1) m.fail("no_rope_layer_interval", "expected a positive number");
  m.zero_layers("no_rope_layers", d, d.unrotated, [&](int64_t layer) { return (layer + 1) % interval == 0; });
  m.entry("attention_chunk_size", d.chunk, 8192);
  m.named_layers("layer_types", d, d.sliding, "chunked_attention", "full_attention",
                 [&](int64_t layer) { return !d.unrotated[static_cast<size_t>(layer)]; });
  bool normed = d.rotated_norm && !std::holds_alternative<NoQkNorm>(*d.rotated_norm);
  m.entry("use_qk_norm", normed, true);
  if (m.reading() && normed) d.rotated_norm = PerHeadQkNorm{RmsNormNoParams{.eps = eps}, false, true};
  bool tuned = d.unrotated_temperature.has_value();
  QueryTemperature temperature = d.unrotated_temperature.value_or(QueryTemperature{});
  m.entry("attn_temperature_tuning", tuned, true);
  m.entry("attn_scale", temperature.scale, 0.1);
  m.entry("floor_scale", temperature.interval, 8192);
  if (m.reading() && tuned) d.unrotated_temperature = temperature;
}

NameMap llama4_names() {
  return joined(
      {decoder_names(),
       attention_names(),
       pre_norm_names(),
       {{"model.layers.{l}.feed_forward.gate_proj.weight", "ffn.gate.weight"},
        {"model.layers.{l}.feed_forward.up_proj.weight", "ffn.up.weight"},
        {"model.layers.{l}.feed_forward.down_proj.weight", "ffn.down.weight"},
        {"model.layers.{l}.feed_forward.router.weight", "ffn.router.weight"},
        {"model.layers.{l}.feed_forward.experts.gate_up_proj", "ffn.experts.gate.weight ffn.experts.up.weight",
         Rows::whole, Form::transposed},
        {"model.layers.{l}.feed_forward.experts.down_proj", "ffn.experts.down.weight", Rows::whole, Form::transposed},
        {"model.layers.{l}.feed_forward.shared_expert.gate_proj.weight", "ffn.shared.gate.weight"},
        {"model.layers.{l}.feed_forward.shared_expert.up_proj.weight", "ffn.shared.up.weight"},
        {"model.layers.{l}.feed_forward.shared_expert.down_proj.weight", "ffn.shared.down.weight"}}});
}

}  // namespace

NameMap shared_expert_names() {
  return joined({{{"model.layers.{l}.mlp.shared_expert.gate_proj.weight", "ffn.shared.gate.weight"},
                  {"model.layers.{l}.mlp.shared_expert.up_proj.weight", "ffn.shared.up.weight"},
                  {"model.layers.{l}.mlp.shared_expert.down_proj.weight", "ffn.shared.down.weight"},
                  {"model.layers.{l}.mlp.shared_expert_gate.weight", "ffn.shared_gate.weight"}},
                 expert_names()});
}

std::vector<Family> expert_variants() {
  return {
      {"qwen2_moe", "Qwen2MoeForCausalLM", qwen2_moe, shared_expert_names(), true, false, joined_expert_names()},
      {"phimoe", "PhimoeForCausalLM", phimoe, mixtral_names(), true, false, phimoe_parameters()},
      {"llama4_text", "Llama4ForCausalLM", llama4_text, llama4_names()},
  };
}

}  // namespace lamina::io::hf
