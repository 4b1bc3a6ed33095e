#include <algorithm>

#include "lamina/io/hf/family.h"

namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

struct T5Sizes {
  int64_t vocab_size;
  int64_t d_model;
  int64_t d_ff;
  int64_t n_layers;
  int64_t n_heads;
};

/// A value of feed_forward_proj and its meaning. "gated-gelu" is GELU with the tanh approximation.
struct T5FeedForward {
  std::string_view name;
  Ffn ffn;
};
const std::vector<T5FeedForward>& t5_feed_forwards() {
  static const std::vector<T5FeedForward> list{
      {"relu", PlainFfn{.activation = Activation::relu}},
      {"gated-gelu", GatedFfn{.gate = Gate::geglu_tanh}},
      {"gated-silu", GatedFfn{.gate = Gate::swiglu}},
      {"gelu", PlainFfn{.activation = Activation::gelu}},
      {"gelu_new", PlainFfn{.activation = Activation::gelu_tanh}},
      {"silu", PlainFfn{.activation = Activation::silu}},
      {"gated-relu", GatedFfn{.gate = Gate::reglu}},
  };
  return list;
}

bool same_function(const Ffn& a, const Ffn& b) {
  const auto* plain_a = std::get_if<PlainFfn>(&a);
  const auto* plain_b = std::get_if<PlainFfn>(&b);
  const auto* gated_a = std::get_if<GatedFfn>(&a);
  const auto* gated_b = std::get_if<GatedFfn>(&b);
  if (plain_a != nullptr && plain_b != nullptr) return plain_a->activation == plain_b->activation;
  return gated_a != nullptr && gated_b != nullptr && gated_a->gate == gated_b->gate;
}

void t5_feed_forward(ConfigMap& m, Ffn& ffn, int64_t d_ff, std::string_view otherwise) {
  std::string name(otherwise);
  for (const T5FeedForward& known : t5_feed_forwards()) {
    if (!m.reading() && same_function(known.ffn, ffn)) {
      name = known.name;
      break;
    }
  }
  m.entry("feed_forward_proj", name, otherwise);
  if (m.reading()) {
    const T5FeedForward* found = nullptr;
    for (const T5FeedForward& known : t5_feed_forwards()) {
      if (known.name == name) found = &known;
    }
    if (found == nullptr) m.fail("feed_forward_proj", str("\"", name.substr(0, 64), "\" is not known"));
    ffn = found->ffn;
  }
  if (auto* gated = std::get_if<GatedFfn>(&ffn)) m.entry("d_ff", gated->d_ff, d_ff);
  if (auto* plain = std::get_if<PlainFfn>(&ffn)) m.entry("d_ff", plain->d_ff, d_ff);
  m.ignore({"dense_act_fn", "is_gated_act"});  // follow from feed_forward_proj
}

/// Maps all keys except feed-forward and experts. Both stacks are pre-norm, with relative position biases and scores
/// without 1/sqrt(head_dim).
void t5_base(ConfigMap& m, Draft& d, const T5Sizes& otherwise, bool tied_otherwise) {
  auto& a = m.as<Attention>(d.block.mixer);
  Block& reader = m.need(d.encoder_block);
  auto& b = m.as<Attention>(reader.mixer);
  CrossAttention& cross = m.need(d.block.cross);
  Encoder& encoder = m.need(d.spec.encoder);
  m.encoder_decoder(encoder, 0);
  m.entry("vocab_size", d.spec.vocab_size, otherwise.vocab_size);
  m.entry("d_model|hidden_size", d.spec.d_model, otherwise.d_model);
  encoder_layers(m, "num_layers|num_hidden_layers", d, otherwise.n_layers);
  layers(m, "num_decoder_layers", d, d.n_encoder_layers);
  m.entry("num_heads|num_attention_heads", a.n_heads, otherwise.n_heads);
  m.entry("d_kv", a.head_dim, 64);
  rms(m, d, "layer_norm_epsilon", 1e-6);
  auto& bias = m.as<T5Bias>(d.spec.position);
  m.entry("relative_attention_num_buckets", bias.buckets, 32);
  m.entry("relative_attention_max_distance", bias.max_distance, 128);
  tied(m, d, tied_otherwise);
  m.constant(a.scale, 1.0);
  m.constant(cross, CrossAttention{.n_heads = a.n_heads, .head_dim = a.head_dim, .scale = 1.0});
  m.constant(b, a);
  m.constant(encoder.shared_embedding, true);
  m.constant(d.spec.context, 512);
  m.ignore({"n_positions", "dropout_rate", "initializer_factor"});
}

/// Logits are scaled by 1/sqrt(d_model) if the head is tied. A key scale_decoder_outputs, if the family has one, takes
/// precedence.
void t5_scaled_outputs(ConfigMap& m, Draft& d, bool has_key) {
  const auto* constant = std::get_if<ConstantScale>(&d.spec.head.scale);
  bool scaled = m.reading() ? d.spec.head.tied : constant != nullptr && constant->value != 1.0;
  if (has_key) m.entry("scale_decoder_outputs", scaled, d.spec.head.tied);
  if (scaled) m.constant(d.spec.head.scale, InverseSqrtWidthScale{});
}

void t5(ConfigMap& m, Draft& d) {
  t5_base(m, d, {32128, 512, 2048, 6, 8}, true);
  t5_feed_forward(m, d.block.ffn, 2048, "relu");
  m.constant(d.encoder_block->ffn, d.block.ffn);
  t5_scaled_outputs(m, d, true);
}

void mt5(ConfigMap& m, Draft& d) {
  t5_base(m, d, {250112, 512, 1024, 8, 6}, true);
  t5_feed_forward(m, d.block.ffn, 1024, "gated-gelu");
  m.constant(d.encoder_block->ffn, d.block.ffn);
}

/// Distance between layers with experts, if `sparse` of `layers` layers have experts.
int64_t sparse_step(ConfigMap& m, std::string_view key, int64_t layers, int64_t sparse) {
  if (sparse < 0 || sparse > layers) m.fail(key, str(sparse, " of ", layers, " layers"));
  return sparse > 0 ? layers / sparse : layers;
}

std::vector<bool> dense_layers(int64_t layers, int64_t sparse, int64_t step) {
  std::vector<bool> dense;
  for (int64_t i = 0; i < layers; ++i) dense.push_back(sparse == 0 || (i % step != 1 && step != 1));
  return dense;
}

int64_t sparse_count(const std::vector<bool>& dense) {
  return static_cast<int64_t>(std::count(dense.begin(), dense.end(), false));
}

void switch_transformers(ConfigMap& m, Draft& d) {
  t5_base(m, d, {32128, 768, 2048, 12, 12}, true);
  auto& moe = m.as<Moe>(d.block.ffn);
  auto& expert = m.as<PlainFfn>(moe.expert);
  m.entry("num_experts", moe.experts, 8);
  m.entry("router_bias", moe.router_bias, false);
  m.entry("expert_capacity", moe.capacity, 64);
  m.entry("d_ff", expert.d_ff, 2048);
  m.entry("dense_act_fn", expert.activation, "relu");
  m.constant(moe.top_k, 1);
  m.entry("router_aux_loss_coef", moe.balance_loss, 0.001);
  m.entry("router_z_loss_coef", moe.z_loss, 0.001);
  PlainFfn& dense = m.need(d.dense_plain);
  m.constant(dense, expert);
  int64_t encoder_sparse = sparse_count(d.encoder_dense);
  int64_t decoder_sparse = sparse_count(d.dense);
  m.entry("num_sparse_encoder_layers", encoder_sparse, 3);
  m.entry("num_sparse_decoder_layers", decoder_sparse, 3);
  const int64_t encoder_step = sparse_step(m, "num_sparse_encoder_layers", d.n_encoder_layers, encoder_sparse);
  const int64_t decoder_step = sparse_step(m, "num_sparse_decoder_layers", d.n_layers, decoder_sparse);
  if (m.reading()) {
    d.encoder_dense = dense_layers(d.n_encoder_layers, encoder_sparse, encoder_step);
    d.dense = dense_layers(d.n_layers, decoder_sparse, decoder_step);
    d.encoder_block->ffn = d.block.ffn;
  }
  t5_scaled_outputs(m, d, false);
  m.only("router_ignore_padding_tokens", {"false"}, "padding is never routed here");
  m.ignore({"encoder_sparse_step", "decoder_sparse_step", "add_router_probs", "router_dtype", "router_type",
            "batch_prioritized_routing", "feed_forward_proj", "is_gated_act", "add_cross_attention"});
}

NameMap t5_attention_names() {
  NameMap names{{"shared.weight", "embedding.weight"},
                {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "position.weight"},
                {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "encoder.position.weight"},
                {"decoder.final_layer_norm.weight", "final_norm.weight"},
                {"encoder.final_layer_norm.weight", "encoder.final_norm.weight"},
                {"lm_head.weight", "head.weight"},
                {"decoder.block.{l}.layer.0.layer_norm.weight", "mixer_norm.weight"},
                {"decoder.block.{l}.layer.0.SelfAttention.q.weight", "mixer.q.weight"},
                {"decoder.block.{l}.layer.0.SelfAttention.k.weight", "mixer.k.weight"},
                {"decoder.block.{l}.layer.0.SelfAttention.v.weight", "mixer.v.weight"},
                {"decoder.block.{l}.layer.0.SelfAttention.o.weight", "mixer.o.weight"},
                {"decoder.block.{l}.layer.1.layer_norm.weight", "cross_norm.weight"},
                {"decoder.block.{l}.layer.1.EncDecAttention.q.weight", "cross.q.weight"},
                {"decoder.block.{l}.layer.1.EncDecAttention.k.weight", "cross.k.weight"},
                {"decoder.block.{l}.layer.1.EncDecAttention.v.weight", "cross.v.weight"},
                {"decoder.block.{l}.layer.1.EncDecAttention.o.weight", "cross.o.weight"},
                {"decoder.block.{l}.layer.2.layer_norm.weight", "ffn_norm.weight"},
                {"encoder.block.{l}.layer.0.layer_norm.weight", "encoder.mixer_norm.weight"},
                {"encoder.block.{l}.layer.0.SelfAttention.q.weight", "encoder.mixer.q.weight"},
                {"encoder.block.{l}.layer.0.SelfAttention.k.weight", "encoder.mixer.k.weight"},
                {"encoder.block.{l}.layer.0.SelfAttention.v.weight", "encoder.mixer.v.weight"},
                {"encoder.block.{l}.layer.0.SelfAttention.o.weight", "encoder.mixer.o.weight"},
                {"encoder.block.{l}.layer.1.layer_norm.weight", "encoder.ffn_norm.weight"}};
  return names;
}

NameMap t5_names() {
  constexpr auto kWhole = Rows::whole;
  constexpr auto kSame = Form::same;
  return joined(
      {t5_attention_names(),
       {{"decoder.block.{l}.layer.2.DenseReluDense.wi.weight", "ffn.up.weight", kWhole, kSame, When::plain_ffn},
        {"decoder.block.{l}.layer.2.DenseReluDense.wi_0.weight", "ffn.gate.weight"},
        {"decoder.block.{l}.layer.2.DenseReluDense.wi_1.weight", "ffn.up.weight", kWhole, kSame, When::gated_ffn},
        {"decoder.block.{l}.layer.2.DenseReluDense.wo.weight", "ffn.down.weight"},
        {"encoder.block.{l}.layer.1.DenseReluDense.wi.weight", "encoder.ffn.up.weight", kWhole, kSame, When::plain_ffn},
        {"encoder.block.{l}.layer.1.DenseReluDense.wi_0.weight", "encoder.ffn.gate.weight"},
        {"encoder.block.{l}.layer.1.DenseReluDense.wi_1.weight", "encoder.ffn.up.weight", kWhole, kSame,
         When::gated_ffn},
        {"encoder.block.{l}.layer.1.DenseReluDense.wo.weight", "encoder.ffn.down.weight"}}});
}

NameMap switch_names() {
  return joined({t5_attention_names(),
                 {{"decoder.block.{l}.layer.2.mlp.wi.weight", "ffn.up.weight"},
                  {"decoder.block.{l}.layer.2.mlp.wo.weight", "ffn.down.weight"},
                  {"decoder.block.{l}.layer.2.mlp.router.classifier.*", "ffn.router.*"},
                  {"decoder.block.{l}.layer.2.mlp.experts.expert_{e}.wi.weight", "ffn.experts.up.weight"},
                  {"decoder.block.{l}.layer.2.mlp.experts.expert_{e}.wo.weight", "ffn.experts.down.weight"},
                  {"encoder.block.{l}.layer.1.mlp.wi.weight", "encoder.ffn.up.weight"},
                  {"encoder.block.{l}.layer.1.mlp.wo.weight", "encoder.ffn.down.weight"},
                  {"encoder.block.{l}.layer.1.mlp.router.classifier.*", "encoder.ffn.router.*"},
                  {"encoder.block.{l}.layer.1.mlp.experts.expert_{e}.wi.weight", "encoder.ffn.experts.up.weight"},
                  {"encoder.block.{l}.layer.1.mlp.experts.expert_{e}.wo.weight", "encoder.ffn.experts.down.weight"}}});
}

/// Tensors that are skipped: copies of the shared embedding table, and a cross-attention bias that is never used.
constexpr std::string_view kT5Extras[] = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                                          "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"};

void bart(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  Block& reader = m.need(d.encoder_block);
  auto& b = m.as<Attention>(reader.mixer);
  auto& f = m.as<PlainFfn>(d.block.ffn);
  auto& g = m.as<PlainFfn>(reader.ffn);
  CrossAttention& cross = m.need(d.block.cross);
  Encoder& encoder = m.need(d.spec.encoder);
  m.encoder_decoder(encoder, 2);
  m.entry("vocab_size", d.spec.vocab_size, 50265);
  m.entry("d_model|hidden_size", d.spec.d_model, 1024);
  encoder_layers(m, "encoder_layers|num_hidden_layers", d, 12);
  layers(m, "decoder_layers", d, 12);
  m.entry("decoder_attention_heads", a.n_heads, 16);
  m.entry("encoder_attention_heads", b.n_heads, 16);
  m.entry("decoder_ffn_dim", f.d_ff, 4096);
  m.entry("encoder_ffn_dim", g.d_ff, 4096);
  m.entry("activation_function", f.activation, "gelu");
  m.entry("max_position_embeddings", d.spec.context, 1024);
  constexpr AttentionBias kBiased{true, true, true, true};
  m.constant(g.activation, f.activation);
  m.constant(f.bias, true);
  m.constant(g.bias, true);
  m.constant(a.bias, kBiased);
  m.constant(b.bias, kBiased);
  m.constant(cross, CrossAttention{.n_heads = a.n_heads, .bias = kBiased});
  m.constant(d.block.placement, Placement::post);
  m.constant(reader.placement, Placement::post);
  m.constant(d.spec.norm, LayerNorm{});
  m.constant(d.spec.embedding.norm, LayerNorm{});
  m.constant(m.as<LearnedPosition>(d.spec.position).offset, 2);
  m.constant(encoder.shared_embedding, true);
  m.constant(d.spec.head.bias, true);
  tied(m, d, true);
  padding(m, d, 1);
  const auto* constant = std::get_if<ConstantScale>(&d.spec.embedding.scale);
  bool scaled = constant != nullptr && constant->value != 1.0;
  m.entry("scale_embedding", scaled, false);
  if (scaled) m.constant(d.spec.embedding.scale, SqrtWidthScale{});
  m.only("add_final_layer_norm", {"false"}, "a final norm is not read");
  m.only("normalize_before", {"false"}, "pre-norm models of this family are not read");
  m.only("normalize_embedding", {"true"}, "the embedding of this family is normed");
  m.only("static_position_embeddings", {"false"}, "positions of this family are learned");
  m.ignore({"encoder_layerdrop", "decoder_layerdrop", "init_std", "classif_dropout", "add_bias_logits",
            "extra_pos_embeddings", "force_bos_token_to_be_generated"});
}

NameMap bart_names() {
  NameMap names{{"model.shared.weight", "embedding.weight"},
                {"model.decoder.embed_positions.weight", "position.weight"},
                {"model.encoder.embed_positions.weight", "encoder.position.weight"},
                {"model.decoder.layernorm_embedding.*", "embedding.norm.*"},
                {"model.encoder.layernorm_embedding.*", "encoder.embedding.norm.*"},
                {"lm_head.weight", "head.weight"},
                {"final_logits_bias", "head.bias", Rows::whole, Form::row},
                {"model.decoder.layers.{l}.encoder_attn.q_proj.*", "cross.q.*"},
                {"model.decoder.layers.{l}.encoder_attn.k_proj.*", "cross.k.*"},
                {"model.decoder.layers.{l}.encoder_attn.v_proj.*", "cross.v.*"},
                {"model.decoder.layers.{l}.encoder_attn.out_proj.*", "cross.o.*"},
                {"model.decoder.layers.{l}.encoder_attn_layer_norm.*", "cross_norm.*"}};
  return joined({names,
                 {{"model.decoder.layers.{l}.self_attn.q_proj.*", "mixer.q.*"},
                  {"model.decoder.layers.{l}.self_attn.k_proj.*", "mixer.k.*"},
                  {"model.decoder.layers.{l}.self_attn.v_proj.*", "mixer.v.*"},
                  {"model.decoder.layers.{l}.self_attn.out_proj.*", "mixer.o.*"},
                  {"model.decoder.layers.{l}.self_attn_layer_norm.*", "mixer_norm.*"},
                  {"model.decoder.layers.{l}.fc1.*", "ffn.up.*"},
                  {"model.decoder.layers.{l}.fc2.*", "ffn.down.*"},
                  {"model.decoder.layers.{l}.final_layer_norm.*", "ffn_norm.*"},
                  {"model.encoder.layers.{l}.self_attn.q_proj.*", "encoder.mixer.q.*"},
                  {"model.encoder.layers.{l}.self_attn.k_proj.*", "encoder.mixer.k.*"},
                  {"model.encoder.layers.{l}.self_attn.v_proj.*", "encoder.mixer.v.*"},
                  {"model.encoder.layers.{l}.self_attn.out_proj.*", "encoder.mixer.o.*"},
                  {"model.encoder.layers.{l}.self_attn_layer_norm.*", "encoder.mixer_norm.*"},
                  {"model.encoder.layers.{l}.fc1.*", "encoder.ffn.up.*"},
                  {"model.encoder.layers.{l}.fc2.*", "encoder.ffn.down.*"},
                  {"model.encoder.layers.{l}.final_layer_norm.*", "encoder.ffn_norm.*"}}});
}

constexpr std::string_view kBartExtras[] = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"};

}  // namespace

std::vector<Family> encoder_decoder_kin() {
  std::vector<Family> kin{
      {"t5", "T5ForConditionalGeneration", t5, t5_names(), false},
      {"mt5", "MT5ForConditionalGeneration", mt5, t5_names(), false},
      {"switch_transformers", "SwitchTransformersForConditionalGeneration", switch_transformers, switch_names(), false},
      {"bart", "BartForConditionalGeneration", bart, bart_names()},
  };
  for (Family& family : kin) family.extras = kT5Extras;
  kin.back().extras = kBartExtras;
  return kin;
}

}  // namespace lamina::io::hf
