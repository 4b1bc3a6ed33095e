#include "lamina/io/hf/family.h"

namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

constexpr AttentionBias kBiased{true, true, true, true};

/// The head is the embedding with a bias; without a head its definition is the embedding alone.
void masked_head(ConfigMap& m, Draft& d, bool bias) {
  if (d.headless) {
    m.ignore({"tie_word_embeddings"});
    m.constant(d.spec.head, Head{.tied = true});
    return;
  }
  tied(m, d, true);
  m.constant(d.spec.head.bias, bias);
}

/// A post-norm encoder with biases, a norm after the embedding and a masked-language-model head.
Attention& masked_encoder(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.constant(d.spec.causal, false);
  m.constant(a.bias, kBiased);
  m.constant(d.block.placement, Placement::post);
  m.constant(d.spec.final_norm, false);
  masked_head(m, d, true);
  return a;
}

/// The embedding and the head use the same norm as the layers. The head uses the activation of the feed-forward.
void share_norm(ConfigMap& m, Draft& d, Activation activation) {
  m.constant(d.spec.embedding.norm, d.spec.norm);
  if (d.headless) return;
  m.constant(d.spec.head.transform, HeadTransform{.activation = activation, .bias = true, .norm = d.spec.norm});
}

/// Maps all keys of the BERT family except positions and padding.
Attention& bert_base(ConfigMap& m, Draft& d, std::string_view activation, int64_t vocabulary, double eps) {
  Attention& a = masked_encoder(m, d);
  m.entry("vocab_size", d.spec.vocab_size, vocabulary);
  m.entry("hidden_size", d.spec.d_model, 768);
  layers(m, "num_hidden_layers", d, 12);
  m.entry("num_attention_heads", a.n_heads, 12);
  int64_t segments = d.spec.embedding.segments.value_or(0);
  m.entry("type_vocab_size", segments, 2);
  if (segments < 1) m.fail("type_vocab_size", str(segments, ", expected at least 1; this family adds segments"));
  m.constant(d.spec.embedding.segments, segments);
  PlainFfn& f = plain(m, d, "intermediate_size", 3072, "hidden_act", activation);
  m.constant(f.bias, true);
  layer_norm(m, d, "layer_norm_eps", eps);
  share_norm(m, d, f.activation);
  m.only("position_embedding_type", {"\"absolute\""}, "relative positions of this family are not read");
  m.only("add_cross_attention", {"false"}, "a decoder of this family is not read");
  m.ignore({"hidden_dropout_prob", "attention_probs_dropout_prob"});
  return a;
}

void bert(ConfigMap& m, Draft& d) {
  bert_base(m, d, "gelu", 30522, 1e-12);
  m.entry("max_position_embeddings", d.spec.context, 512);
  m.as<LearnedPosition>(d.spec.position);
  padding(m, d, 0);
}

/// Block-sparse attention (BigBird): neighboring blocks, the first, the last, and random blocks that are used only in
/// training.
void big_bird(ConfigMap& m, Draft& d) {
  Attention& a = bert_base(m, d, "gelu_new", 50358, 1e-12);
  m.entry("max_position_embeddings", d.spec.context, 4096);
  m.as<LearnedPosition>(d.spec.position);
  padding(m, d, 0);
  m.flags("use_bias", {&a.bias.q, &a.bias.k, &a.bias.v}, true);
  bool rescaled = std::holds_alternative<SqrtWidthScale>(d.spec.embedding.scale);
  if (const auto* scale = std::get_if<ConstantScale>(&d.spec.embedding.scale)) rescaled = scale->value != 1.0;
  m.entry("rescale_embeddings", rescaled, false);
  if (m.reading() && rescaled) d.spec.embedding.scale = SqrtWidthScale{};
  std::string type = std::holds_alternative<FullPattern>(a.pattern) ? "original_full" : "block_sparse";
  m.entry("attention_type", type, "block_sparse");
  if (type != "block_sparse" && type != "original_full") {
    m.fail("attention_type", str("\"", type.substr(0, 64), "\", expected block_sparse or original_full"));
  }
  const auto* given = std::get_if<BigBirdPattern>(&a.pattern);
  BigBirdPattern pattern = given == nullptr ? BigBirdPattern{} : *given;
  m.entry("block_size", pattern.block, 64);
  m.entry("num_random_blocks", pattern.random_blocks, 3);
  pattern.last_blocks = 1;
  pattern.draw = BlockDraw::numpy;
  if (m.reading() && type == "block_sparse") a.pattern = pattern;
}

/// Learned positions start after the padding row: the first padding_token + 1 rows of the position table are unused.
void roberta_of(ConfigMap& m, Draft& d, int64_t vocabulary) {
  bert_base(m, d, "gelu", vocabulary, 1e-12);
  padding(m, d, 1);
  auto& learned = m.as<LearnedPosition>(d.spec.position);
  const int64_t offset = d.spec.embedding.padding_token.value_or(-1) + 1;
  m.constant(learned.offset, offset);
  int64_t rows = d.spec.context + learned.offset;
  m.entry("max_position_embeddings", rows, 512);
  m.constant(d.spec.context, rows - offset);
}

void roberta(ConfigMap& m, Draft& d) { roberta_of(m, d, 50265); }

/// XLM-RoBERTa and CamemBERT: RoBERTa with another vocabulary.
void roberta_kin(ConfigMap& m, Draft& d) { roberta_of(m, d, 30522); }

/// Sliding-window attention in both directions. The first token is global: it attends to all tokens and has its own
/// projections.
void longformer(ConfigMap& m, Draft& d) {
  roberta(m, d);
  auto& a = m.as<Attention>(d.block.mixer);
  auto& pattern = m.as<LongformerPattern>(a.pattern);
  m.constant(pattern.global_tokens, 1);
  m.constant(pattern.global_projections, true);
  int64_t width = 2 * (pattern.window - 1);
  m.same_for_layers("attention_window", d, width, 512);
  if (width < 2 || width % 2 != 0) m.fail("attention_window", str(width, ", expected an even number from 2 on"));
  m.constant(pattern.window, width / 2 + 1);
  m.ignore({"attention_mode", "attention_dilation", "autoregressive", "onnx_export", "ignore_attention_mask"});
}

void distilbert(ConfigMap& m, Draft& d) {
  Attention& a = masked_encoder(m, d);
  m.entry("vocab_size", d.spec.vocab_size, 30522);
  m.entry("dim|hidden_size", d.spec.d_model, 768);
  layers(m, "n_layers|num_hidden_layers", d, 6);
  m.entry("n_heads|num_attention_heads", a.n_heads, 12);
  PlainFfn& f = plain(m, d, "hidden_dim", 3072, "activation", "gelu");
  m.constant(f.bias, true);
  m.constant(d.spec.norm, LayerNorm{.eps = 1e-12});
  share_norm(m, d, f.activation);
  m.entry("max_position_embeddings", d.spec.context, 512);
  m.as<LearnedPosition>(d.spec.position);
  padding(m, d, 0);
  m.only("sinusoidal_pos_embds", {"false"}, "files hold a table of positions either way");
  m.ignore({"qa_dropout", "seq_classif_dropout", "tie_weights_"});
}

void modernbert_head(ConfigMap& m, Draft& d) {
  masked_head(m, d, true);
  if (d.headless) return m.ignore({"classifier_activation", "classifier_bias", "decoder_bias"});
  HeadTransform& transform = m.need(d.spec.head.transform);
  m.entry("classifier_activation", transform.activation, "gelu");
  m.entry("classifier_bias", transform.bias, false);
  m.constant(transform.norm, d.spec.norm);
  m.entry("decoder_bias", d.spec.head.bias, true);
}

/// Pre-norm encoder with RoPE and a gated feed-forward. Local layers (sliding window) alternate with global ones.
void modernbert(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.constant(d.spec.causal, false);
  m.entry("vocab_size", d.spec.vocab_size, 50368);
  m.entry("hidden_size", d.spec.d_model, 768);
  layers(m, "num_hidden_layers", d, 22);
  m.entry("num_attention_heads", a.n_heads, 12);
  m.entry("max_position_embeddings", d.spec.context, 8192);
  GatedFfn& f = gated(m, d.block.ffn, 1152, "hidden_activation", "gelu");
  m.entry("mlp_bias", f.bias, false);
  attention_bias(m, a, false);
  auto& norm = layer_norm(m, d, "norm_eps", 1e-5);
  m.entry("norm_bias", norm.bias, false);
  m.constant(d.spec.embedding.norm, d.spec.norm);
  m.constant(d.first_unnormed, true);
  modernbert_head(m, d);
  padding(m, d, 50283);
  m.local_and_global_rope(d, 10000.0, 160000.0, "global_rope_theta", "local_rope_theta");
  // local_attention is the full width; a query sees half of it on each side.
  int64_t width = 2 * (d.window.value_or(65) - 1);
  m.entry("local_attention", width, 128);
  if (m.reading()) d.window = width / 2 + 1;
  int64_t every = 3;
  if (m.reading()) m.entry("global_attn_every_n_layers", every, 3);
  if (every < 1) m.fail("global_attn_every_n_layers", "expected a positive number");
  m.layer_types(d, [&](int64_t layer) { return layer % every != 0; });
  m.ignore({"mlp_dropout", "classifier_pooling", "deterministic_flash_attn", "sparse_prediction",
            "sparse_pred_ignore_index", "reference_compile", "repad_logits_with_grad", "initializer_cutoff_factor",
            "position_embedding_type", "layer_norm_eps"});
}

NameMap bert_names() {
  return {{"bert.embeddings.word_embeddings.weight", "embedding.weight"},
          {"bert.embeddings.token_type_embeddings.weight", "embedding.segments.weight"},
          {"bert.embeddings.position_embeddings.weight", "position.weight"},
          {"bert.embeddings.LayerNorm.*", "embedding.norm.*"},
          {"bert.encoder.layer.{l}.attention.self.query.*", "mixer.q.*"},
          {"bert.encoder.layer.{l}.attention.self.key.*", "mixer.k.*"},
          {"bert.encoder.layer.{l}.attention.self.value.*", "mixer.v.*"},
          {"bert.encoder.layer.{l}.attention.output.dense.*", "mixer.o.*"},
          {"bert.encoder.layer.{l}.attention.output.LayerNorm.*", "mixer_norm.*"},
          {"bert.encoder.layer.{l}.intermediate.dense.*", "ffn.up.*"},
          {"bert.encoder.layer.{l}.output.dense.*", "ffn.down.*"},
          {"bert.encoder.layer.{l}.output.LayerNorm.*", "ffn_norm.*"},
          {"cls.predictions.transform.dense.*", "head.transform.dense.*"},
          {"cls.predictions.transform.LayerNorm.*", "head.transform.norm.*"},
          {"cls.predictions.decoder.weight", "head.weight"},
          {"cls.predictions.bias", "head.bias"}};
}

NameMap roberta_head_names() {
  return {{"lm_head.dense.*", "head.transform.dense.*"},
          {"lm_head.layer_norm.*", "head.transform.norm.*"},
          {"lm_head.decoder.weight", "head.weight"},
          {"lm_head.bias", "head.bias"}};
}

NameMap roberta_names() {
  return {{"roberta.embeddings.word_embeddings.weight", "embedding.weight"},
          {"roberta.embeddings.token_type_embeddings.weight", "embedding.segments.weight"},
          {"roberta.embeddings.position_embeddings.weight", "position.weight"},
          {"roberta.embeddings.LayerNorm.*", "embedding.norm.*"},
          {"roberta.encoder.layer.{l}.attention.self.query.*", "mixer.q.*"},
          {"roberta.encoder.layer.{l}.attention.self.key.*", "mixer.k.*"},
          {"roberta.encoder.layer.{l}.attention.self.value.*", "mixer.v.*"},
          {"roberta.encoder.layer.{l}.attention.output.dense.*", "mixer.o.*"},
          {"roberta.encoder.layer.{l}.attention.output.LayerNorm.*", "mixer_norm.*"},
          {"roberta.encoder.layer.{l}.intermediate.dense.*", "ffn.up.*"},
          {"roberta.encoder.layer.{l}.output.dense.*", "ffn.down.*"},
          {"roberta.encoder.layer.{l}.output.LayerNorm.*", "ffn_norm.*"}};
}

NameMap longformer_names() {
  return {{"longformer.embeddings.word_embeddings.weight", "embedding.weight"},
          {"longformer.embeddings.token_type_embeddings.weight", "embedding.segments.weight"},
          {"longformer.embeddings.position_embeddings.weight", "position.weight"},
          {"longformer.embeddings.LayerNorm.*", "embedding.norm.*"},
          {"longformer.encoder.layer.{l}.attention.self.query.*", "mixer.q.*"},
          {"longformer.encoder.layer.{l}.attention.self.key.*", "mixer.k.*"},
          {"longformer.encoder.layer.{l}.attention.self.value.*", "mixer.v.*"},
          {"longformer.encoder.layer.{l}.attention.self.query_global.*", "mixer.global_q.*"},
          {"longformer.encoder.layer.{l}.attention.self.key_global.*", "mixer.global_k.*"},
          {"longformer.encoder.layer.{l}.attention.self.value_global.*", "mixer.global_v.*"},
          {"longformer.encoder.layer.{l}.attention.output.dense.*", "mixer.o.*"},
          {"longformer.encoder.layer.{l}.attention.output.LayerNorm.*", "mixer_norm.*"},
          {"longformer.encoder.layer.{l}.intermediate.dense.*", "ffn.up.*"},
          {"longformer.encoder.layer.{l}.output.dense.*", "ffn.down.*"},
          {"longformer.encoder.layer.{l}.output.LayerNorm.*", "ffn_norm.*"}};
}

NameMap distilbert_names() {
  return {{"distilbert.embeddings.word_embeddings.weight", "embedding.weight"},
          {"distilbert.embeddings.position_embeddings.weight", "position.weight"},
          {"distilbert.embeddings.LayerNorm.*", "embedding.norm.*"},
          {"distilbert.transformer.layer.{l}.attention.q_lin.*", "mixer.q.*"},
          {"distilbert.transformer.layer.{l}.attention.k_lin.*", "mixer.k.*"},
          {"distilbert.transformer.layer.{l}.attention.v_lin.*", "mixer.v.*"},
          {"distilbert.transformer.layer.{l}.attention.out_lin.*", "mixer.o.*"},
          {"distilbert.transformer.layer.{l}.sa_layer_norm.*", "mixer_norm.*"},
          {"distilbert.transformer.layer.{l}.ffn.lin1.*", "ffn.up.*"},
          {"distilbert.transformer.layer.{l}.ffn.lin2.*", "ffn.down.*"},
          {"distilbert.transformer.layer.{l}.output_layer_norm.*", "ffn_norm.*"},
          {"vocab_transform.*", "head.transform.dense.*"},
          {"vocab_layer_norm.*", "head.transform.norm.*"},
          {"vocab_projector.*", "head.*"}};
}

NameMap modernbert_names() {
  return {{"model.embeddings.tok_embeddings.weight", "embedding.weight"},
          {"model.embeddings.norm.*", "embedding.norm.*"},
          {"model.layers.{l}.attn_norm.*", "mixer_norm.*"},
          {"model.layers.{l}.attn.Wqkv.*", "mixer.q.* mixer.k.* mixer.v.*"},
          {"model.layers.{l}.attn.Wo.*", "mixer.o.*"},
          {"model.layers.{l}.mlp_norm.*", "ffn_norm.*"},
          {"model.layers.{l}.mlp.Wi.*", "ffn.gate.* ffn.up.*"},
          {"model.layers.{l}.mlp.Wo.*", "ffn.down.*"},
          {"model.final_norm.*", "final_norm.*"},
          {"head.dense.*", "head.transform.dense.*"},
          {"head.norm.*", "head.transform.norm.*"},
          {"decoder.*", "head.*"}};
}

/// Tensors of other heads, and the second name of the head's bias. They are skipped. Files without a head have a pooler
/// without a prefix.
constexpr std::string_view kBertExtras[] = {"bert.pooler.", "pooler.", "cls.seq_relationship.",
                                            "cls.predictions.decoder.bias"};
constexpr std::string_view kRobertaExtras[] = {"roberta.pooler.", "longformer.pooler.", "pooler.",
                                               "lm_head.decoder.bias"};

constexpr std::string_view kBertHead = "cls.predictions.transform.dense.weight";
constexpr std::string_view kRobertaHead = "lm_head.dense.weight";

Family with_headless(Family family, const HeadlessFiles& headless, std::span<const std::string_view> extras = {}) {
  family.headless = headless;
  family.extras = extras;
  return family;
}

}  // namespace

std::vector<Family> bert_kin() {
  const NameMap roberta_all = joined({roberta_names(), roberta_head_names()});
  return {
      with_headless({"bert", "BertForMaskedLM", bert, bert_names()}, {"BertModel", "bert.", kBertHead}, kBertExtras),
      with_headless({"roberta", "RobertaForMaskedLM", roberta, roberta_all}, {"RobertaModel", "roberta.", kRobertaHead},
                    kRobertaExtras),
      with_headless({"xlm-roberta", "XLMRobertaForMaskedLM", roberta_kin, roberta_all},
                    {"XLMRobertaModel", "roberta.", kRobertaHead}, kRobertaExtras),
      with_headless({"camembert", "CamembertForMaskedLM", roberta_kin, roberta_all},
                    {"CamembertModel", "roberta.", kRobertaHead}, kRobertaExtras),
      with_headless({"distilbert", "DistilBertForMaskedLM", distilbert, distilbert_names()},
                    {"DistilBertModel", "distilbert.", "vocab_transform.weight"}),
      with_headless(
          {"longformer", "LongformerForMaskedLM", longformer, joined({longformer_names(), roberta_head_names()})},
          {"LongformerModel", "longformer.", kRobertaHead}, kRobertaExtras),
      with_headless({"modernbert", "ModernBertForMaskedLM", modernbert, modernbert_names()},
                    {"ModernBertModel", "model.", "head.dense.weight"}),
      with_headless({"big_bird", "BigBirdForMaskedLM", big_bird, bert_names()}, {"BigBirdModel", "bert.", kBertHead},
                    kBertExtras),
  };
}

}  // namespace lamina::io::hf
