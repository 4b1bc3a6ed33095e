#include <cmath>

#include "lamina/io/hf/family.h"

/// Families with an ungated feed-forward, fused QKV projections, and many kinds of position encoding.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

constexpr AttentionBias kAllBiases{true, true, true, true};

/// Maps n_embd, n_layer, n_head, n_positions, n_inner, activation_function, layer_norm_epsilon.
Attention& gpt_base(ConfigMap& m, Draft& d, const DecoderSizes& sizes, std::string_view activation, bool tie) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, sizes.vocab_size);
  m.entry("n_embd|hidden_size", d.spec.d_model, sizes.d_model);
  layers(m, "n_layer|num_hidden_layers", d, sizes.n_layers);
  m.entry("n_head|num_attention_heads", a.n_heads, sizes.n_heads);
  m.entry("n_positions|max_position_embeddings", d.spec.context, sizes.context);
  m.constant(plain(m, d, "n_inner", {}, "activation_function", activation).bias, true);
  layer_norm(m, d, "layer_norm_epsilon", 1e-5);
  tied(m, d, tie);
  m.ignore({"n_ctx", "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
            "summary_first_dropout", "scale_attn_weights"});
  return a;
}

void scaled_scores(ConfigMap& m, Attention& a) {
  bool scaled = a.scale.value_or(0.0) != 1.0;
  m.entry("scale_attn_weights", scaled, true);
  if (m.reading() && !scaled) a.scale = 1.0;
}

void gpt2(ConfigMap& m, Draft& d) {
  Attention& a = gpt_base(m, d, {50257, 768, 12, 12, {}, 1024}, "gelu_new", true);
  m.constant(a.bias, kAllBiases);
  m.as<LearnedPosition>(d.spec.position);
  scaled_scores(m, a);
  m.entry("scale_attn_by_inverse_layer_idx", d.scale_falls_by_layer, false);
  m.only("add_cross_attention", {"false"}, "models with an encoder are not read");
  m.ignore({"reorder_and_upcast_attn"});
}

NameMap gpt2_names(Form form, Rows rows) {
  return {{"transformer.wte.weight", "embedding.weight"},
          {"transformer.wpe.weight", "position.weight"},
          {"transformer.h.{l}.ln_1.*", "mixer_norm.*"},
          {"transformer.h.{l}.attn.c_attn.*", "mixer.q.* mixer.k.* mixer.v.*", rows, form},
          {"transformer.h.{l}.attn.c_proj.*", "mixer.o.*", Rows::whole, form},
          {"transformer.h.{l}.ln_2.*", "ffn_norm.*"},
          {"transformer.h.{l}.mlp.c_fc.*", "ffn.up.*", Rows::whole, form},
          {"transformer.h.{l}.mlp.c_proj.*", "ffn.down.*", Rows::whole, form},
          {"transformer.ln_f.*", "final_norm.*"},
          {"lm_head.*", "head.*"}};
}

void gpt_bigcode(ConfigMap& m, Draft& d) {
  Attention& a = gpt_base(m, d, {50257, 768, 12, 12, {}, 1024}, "gelu_pytorch_tanh", true);
  m.constant(a.bias, kAllBiases);
  m.as<LearnedPosition>(d.spec.position);
  scaled_scores(m, a);
  bool one_key = a.n_kv_heads == 1;
  m.entry("multi_query", one_key, true);
  if (m.reading() && one_key) a.n_kv_heads = 1;
  m.only("add_cross_attention", {"false"}, "models with an encoder are not read");
  m.ignore({"num_key_value_heads", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner",
            "validate_runner_input", "pre_allocate_kv_cache", "max_sequence_length", "max_batch_size"});
}

void gptj(ConfigMap& m, Draft& d) {
  gpt_base(m, d, {50400, 4096, 28, 16, {}, 2048}, "gelu_new", false);
  Rope& rope = m.need(d.rope);
  int64_t rotated = rope.rotary_dim.value_or(64);
  m.entry("rotary_dim", rotated, 64);
  m.constant(rope.rotary_dim, rotated);
  m.constant(rope.pairing, Pairing::interleaved);
  m.constant(d.block.wiring, ParallelWiring{});
  m.constant(d.spec.head.bias, true);
  m.ignore({"rotary"});
}

NameMap gptj_names() {
  return {{"transformer.wte.weight", "embedding.weight"},
          {"transformer.h.{l}.ln_1.*", "norm.*"},
          {"transformer.h.{l}.attn.q_proj.weight", "mixer.q.weight"},
          {"transformer.h.{l}.attn.k_proj.weight", "mixer.k.weight"},
          {"transformer.h.{l}.attn.v_proj.weight", "mixer.v.weight"},
          {"transformer.h.{l}.attn.out_proj.weight", "mixer.o.weight"},
          {"transformer.h.{l}.mlp.fc_in.*", "ffn.up.*"},
          {"transformer.h.{l}.mlp.fc_out.*", "ffn.down.*"},
          {"transformer.ln_f.*", "final_norm.*"},
          {"lm_head.*", "head.*"}};
}

/// CodeGen was trained on four devices: the QKV tensor holds queries, values and keys of each device in turn.
NameMap codegen_names() {
  return joined(
      {{{"transformer.h.{l}.attn.qkv_proj.weight", "mixer.q.weight mixer.v.weight mixer.k.weight", Rows::four}},
       gptj_names()});
}

void gpt_neox(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, 50432);
  m.entry("hidden_size", d.spec.d_model, 6144);
  layers(m, "num_hidden_layers", d, 44);
  m.entry("num_attention_heads", a.n_heads, 64);
  m.entry("max_position_embeddings", d.spec.context, 2048);
  m.constant(plain(m, d, "intermediate_size", 24576, "hidden_act", "gelu").bias, true);
  layer_norm(m, d, "layer_norm_eps", 1e-5);
  tied(m, d, false);
  m.rope(d, {10000.0, 0.25, "rotary_emb_base", "rotary_pct"});
  attention_bias(m, a, true);
  bool parallel = std::holds_alternative<ParallelWiring>(d.block.wiring);
  m.entry("use_parallel_residual", parallel, true);
  if (m.reading() && parallel) d.block.wiring = ParallelWiring{.shared_norm = false};
}

NameMap gpt_neox_names() {
  return {{"gpt_neox.embed_in.weight", "embedding.weight"},
          {"gpt_neox.layers.{l}.input_layernorm.*", "mixer_norm.*"},
          {"gpt_neox.layers.{l}.post_attention_layernorm.*", "ffn_norm.*"},
          {"gpt_neox.layers.{l}.attention.query_key_value.*", "mixer.q.* mixer.k.* mixer.v.*", Rows::kv_heads},
          {"gpt_neox.layers.{l}.attention.dense.*", "mixer.o.*"},
          {"gpt_neox.layers.{l}.mlp.dense_h_to_4h.*", "ffn.up.*"},
          {"gpt_neox.layers.{l}.mlp.dense_4h_to_h.*", "ffn.down.*"},
          {"gpt_neox.final_layer_norm.*", "final_norm.*"},
          {"embed_out.weight", "head.weight"}};
}

void bloom(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, 250880);
  m.entry("hidden_size|n_embed", d.spec.d_model, 64);
  layers(m, "n_layer|num_hidden_layers", d, 2);
  m.entry("n_head|num_attention_heads", a.n_heads, 8);
  const double eps = layer_norm(m, d, "layer_norm_epsilon", 1e-5).eps;
  m.constant(d.spec.embedding.norm, LayerNorm{.eps = eps});
  tied(m, d, true);
  m.as<Alibi>(d.spec.position);
  m.constant(a.bias, kAllBiases);
  auto& f = m.as<PlainFfn>(d.block.ffn);
  m.constant(f.activation, Activation::gelu_tanh);
  m.constant(f.bias, true);
  bool after = d.block.placement == Placement::residual_after_norm;
  m.entry("apply_residual_connection_post_layernorm", after, false);
  if (m.reading() && after) d.block.placement = Placement::residual_after_norm;
  m.only("n_inner", {"null"}, "the family's feed-forward is four times as wide");
  m.ignore({"seq_length", "offset_alibi", "attention_softmax_in_fp32", "masked_softmax_fusion", "bias_dropout_fusion",
            "skip_bias_add", "skip_bias_add_qkv", "slow_but_exact"});
}

NameMap bloom_names() {
  return {{"transformer.word_embeddings.weight", "embedding.weight"},
          {"transformer.word_embeddings_layernorm.*", "embedding.norm.*"},
          {"transformer.h.{l}.input_layernorm.*", "norm.*"},
          {"transformer.h.{l}.input_layernorm.*", "mixer_norm.*", Rows::whole, Form::same, When::serial},
          {"transformer.h.{l}.ln_attn.*", "mixer_norm.*", Rows::whole, Form::same, When::parallel},
          {"transformer.h.{l}.post_attention_layernorm.*", "ffn_norm.*", Rows::whole, Form::same, When::serial},
          {"transformer.h.{l}.ln_mlp.*", "ffn_norm.*", Rows::whole, Form::same, When::parallel},
          {"transformer.h.{l}.self_attention.query_key_value.*", "mixer.q.* mixer.k.* mixer.v.*", Rows::kv_heads},
          {"transformer.h.{l}.self_attention.dense.*", "mixer.o.*"},
          {"transformer.h.{l}.mlp.dense_h_to_4h.*", "ffn.up.*"},
          {"transformer.h.{l}.mlp.dense_4h_to_h.*", "ffn.down.*"},
          {"transformer.ln_f.*", "final_norm.*"},
          {"lm_head.*", "head.*"}};
}

/// Falcon's three block layouts: parallel multi-query with one norm; parallel grouped-query (new_decoder_architecture)
/// with one or two norms; serial.
void falcon_block(ConfigMap& m, Draft& d, Attention& a) {
  const auto* wiring = std::get_if<ParallelWiring>(&d.block.wiring);
  bool parallel = wiring != nullptr;
  const bool two_norms = parallel && !wiring->shared_norm;
  std::optional<int64_t> key_heads = a.n_kv_heads;
  bool grouped = two_norms || (key_heads && *key_heads != 1 && *key_heads != a.n_heads);
  bool one_key = grouped || key_heads == 1;
  std::optional<int64_t> norms;
  if (grouped) norms = two_norms ? 2 : 1;
  m.entry("new_decoder_architecture", grouped, false);
  m.entry("multi_query", one_key, true);
  m.entry("parallel_attn", parallel, true);
  m.entry("num_kv_heads", key_heads, {});
  m.entry("num_ln_in_parallel_attn", norms, {});
  if (!m.reading()) return;
  if (grouped && !parallel)
    m.fail("parallel_attn", "false with new_decoder_architecture; the family has no such block");
  if (!grouped && norms.value_or(1) != 1) {
    m.fail("num_ln_in_parallel_attn", "two norms without new_decoder_architecture; the family has no such block");
  }
  if (norms && *norms != 1 && *norms != 2) m.fail("num_ln_in_parallel_attn", str(*norms, ", expected 1 or 2"));
  a.n_kv_heads = !grouped && one_key ? std::optional<int64_t>(1) : key_heads;
  if (!grouped && !one_key && key_heads && *key_heads != a.n_heads) {
    m.fail("num_kv_heads", "grouped keys without new_decoder_architecture; the family has no such block");
  }
  if (parallel) d.block.wiring = ParallelWiring{.shared_norm = !grouped || norms.value_or(2) == 1};
}

void falcon(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, 65024);
  m.entry("hidden_size|n_embed", d.spec.d_model, 4544);
  layers(m, "num_hidden_layers", d, 32);
  m.entry("num_attention_heads", a.n_heads, 71);
  m.entry("max_position_embeddings", d.spec.context, 2048);
  PlainFfn& f = plain(m, d, "ffn_hidden_size", {}, "activation", "gelu");
  layer_norm(m, d, "layer_norm_epsilon", 1e-5);
  tied(m, d, true);
  m.flags("bias", {&a.bias.q, &a.bias.k, &a.bias.v, &a.bias.o, &f.bias}, false);
  falcon_block(m, d, a);
  bool alibi = std::holds_alternative<Alibi>(d.spec.position);
  m.entry("alibi", alibi, false);
  RopeKeys keys;
  keys.fraction_key = "";
  if (!alibi || m.reading()) m.rope(d, keys);
  if (m.reading() && alibi) {
    // Falcon adds the ALiBi bias, computed in bf16, before it scales the scores.
    const int64_t width = a.n_heads > 0 ? d.spec.d_model / a.n_heads : 1;
    d.rope.reset();
    d.spec.position = Alibi{.slope_scale = 1.0 / std::sqrt(static_cast<double>(width)), .rounding = BiasRounding::bf16};
  }
  m.ignore({"apply_residual_connection_post_layernorm", "rotary"});
}

void opt(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, 50272);
  m.entry("hidden_size", d.spec.d_model, 768);
  layers(m, "num_hidden_layers", d, 12);
  m.entry("num_attention_heads", a.n_heads, 12);
  m.entry("max_position_embeddings", d.spec.context, 2048);
  m.entry("word_embed_proj_dim", d.spec.embedding.d_embed, {});
  PlainFfn& f = plain(m, d, "ffn_dim", 3072, "activation_function", "relu");
  m.flags("enable_bias", {&a.bias.q, &a.bias.k, &a.bias.v, &a.bias.o, &f.bias}, true);
  bool scaled = std::holds_alternative<LayerNorm>(d.spec.norm);
  m.entry("layer_norm_elementwise_affine", scaled, true);
  m.constant(d.spec.norm, scaled ? Norm(LayerNorm{}) : Norm(LayerNormNoParams{}));
  bool before = d.block.placement == Placement::pre;
  m.entry("do_layer_norm_before", before, true);
  m.constant(d.block.placement, before ? Placement::pre : Placement::post);
  bool removed = before && d.spec.final_norm == false;
  m.entry("_remove_final_layer_norm", removed, false);
  m.constant(d.spec.final_norm, before && !removed);
  tied(m, d, true);
  padding(m, d, 1);
  m.constant(m.as<LearnedPosition>(d.spec.position).offset, 2);
  m.ignore({"layerdrop", "init_std", "output_projection"});
}

NameMap opt_names() {
  return {{"model.decoder.embed_tokens.weight", "embedding.weight"},
          {"model.decoder.project_in.weight", "embedding.project_in.weight"},
          {"model.decoder.embed_positions.weight", "position.weight"},
          {"model.decoder.layers.{l}.self_attn_layer_norm.*", "mixer_norm.*"},
          {"model.decoder.layers.{l}.self_attn.q_proj.*", "mixer.q.*"},
          {"model.decoder.layers.{l}.self_attn.k_proj.*", "mixer.k.*"},
          {"model.decoder.layers.{l}.self_attn.v_proj.*", "mixer.v.*"},
          {"model.decoder.layers.{l}.self_attn.out_proj.*", "mixer.o.*"},
          {"model.decoder.layers.{l}.final_layer_norm.*", "ffn_norm.*"},
          {"model.decoder.layers.{l}.fc1.*", "ffn.up.*"},
          {"model.decoder.layers.{l}.fc2.*", "ffn.down.*"},
          {"model.decoder.final_layer_norm.*", "final_norm.*"},
          {"model.decoder.project_out.weight", "head.project_out.weight"},
          {"lm_head.*", "head.*"}};
}

void mpt(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, 50368);
  m.entry("d_model|hidden_size", d.spec.d_model, 2048);
  layers(m, "n_layers|num_hidden_layers", d, 24);
  m.entry("n_heads|num_attention_heads", a.n_heads, 16);
  m.entry("max_seq_len", d.spec.context, 2048);
  layer_norm(m, d, "layer_norm_epsilon", 1e-5, false);
  tied(m, d, true);
  m.as<Alibi>(d.spec.position);
  m.constant(m.as<PlainFfn>(d.block.ffn).activation, Activation::gelu);
  m.only("expansion_ratio", {"4", "4.0"}, "the family's feed-forward is four times as wide");
  m.only("no_bias", {"true"}, "the family has no biases");
  m.only("logit_scale", {"null"}, "the family does not scale logits");
  m.only("embedding_fraction", {"1.0", "1"}, "the family's reader does not know other fractions");
  m.ignore({"emb_pdrop", "learned_pos_emb", "init_device", "norm_type", "init_config", "verbose", "tokenizer_name"});
  ConfigMap& attention = m.nested("attn_config");
  attention.entry("clip_qkv", a.clip_qkv, {});
  if (a.clip_qkv == 0.0) a.clip_qkv.reset();
  attention.entry("softmax_scale", a.scale, {});
  attention.only("alibi", {"true"}, "the family's reader always adds it");
  attention.only("alibi_bias_max", {"8", "8.0"}, "the family's reader always takes 8");
  attention.only("attn_type", {"\"multihead_attention\""}, "the family's reader has no other");
  attention.only("prefix_lm", {"false"}, "models that see the future are not read");
  attention.only("qk_ln", {"false"}, "the family's reader has no norms of queries and keys");
  attention.only("attn_uses_sequence_id", {"false"}, "packed sequences are not read");
  attention.ignore({"attn_impl"});
}

NameMap mpt_names() {
  return {{"transformer.wte.weight", "embedding.weight"},
          {"transformer.blocks.{l}.norm_1.*", "mixer_norm.*"},
          {"transformer.blocks.{l}.attn.Wqkv.weight", "mixer.q.weight mixer.k.weight mixer.v.weight"},
          {"transformer.blocks.{l}.attn.out_proj.weight", "mixer.o.weight"},
          {"transformer.blocks.{l}.norm_2.*", "ffn_norm.*"},
          {"transformer.blocks.{l}.ffn.up_proj.weight", "ffn.up.weight"},
          {"transformer.blocks.{l}.ffn.down_proj.weight", "ffn.down.weight"},
          {"transformer.norm_f.*", "final_norm.*"},
          {"lm_head.*", "head.*"}};
}

}  // namespace

std::vector<Family> gpt_kin() {
  return {
      {"gpt2", "GPT2LMHeadModel", gpt2, gpt2_names(Form::transposed, Rows::whole)},
      {"gpt_bigcode", "GPTBigCodeForCausalLM", gpt_bigcode, gpt2_names(Form::same, Rows::kv_heads)},
      {"bloom", "BloomForCausalLM", bloom, bloom_names(), false},
      {"falcon", "FalconForCausalLM", falcon, bloom_names()},
      {"gpt_neox", "GPTNeoXForCausalLM", gpt_neox, gpt_neox_names(), true, false, {{"lm_head.weight", "head.weight"}}},
      {"gptj", "GPTJForCausalLM", gptj, gptj_names()},
      {"codegen", "CodeGenForCausalLM", gptj, codegen_names()},
      {"opt", "OPTForCausalLM", opt, opt_names()},
      {"mpt", "MptForCausalLM", mpt, mpt_names()},
  };
}

}  // namespace lamina::io::hf
