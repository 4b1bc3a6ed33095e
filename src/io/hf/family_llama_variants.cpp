#include "lamina/io/hf/family.h"

/// Dense decoders that differ from the families of family_llama.cpp and family_gpt.cpp in a few keys and names.
namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

void arcee(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {32000, 2560, 32, 32, {}, 4096});
  m.entry("head_dim", a.head_dim, {});
  PlainFfn& f = plain(m, d, "intermediate_size", 18432, "hidden_act", "relu2");
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {});
  attention_bias(m, a, false);
  m.flags("mlp_bias", {&f.bias}, false);
}

void seed_oss(ConfigMap& m, Draft& d) {
  const auto [a, f] = gated_decoder(m, d, {{155136, 4096, 64, 80, 8, 524288}, 128, 27648});
  m.flags("attention_bias", {&a.bias.q, &a.bias.k, &a.bias.v}, true);
  m.flags("attention_out_bias", {&a.bias.o}, false);
  m.flags("mlp_bias", {&f.bias}, false);
}

void ernie4_5(ConfigMap& m, Draft& d) {
  const auto [a, f] =
      gated_decoder(m, d, {{103424, 1024, 18, 16, 2, 131072}, 128, 3072, 1e-5, true, 0, {.theta = 500000.0}});
  m.constant(m.need(d.rope).pairing, Pairing::interleaved);
  m.flags("use_bias", {&a.bias.q, &a.bias.k, &a.bias.v, &a.bias.o, &f.bias}, false);
}

void helium(ConfigMap& m, Draft& d) {
  const auto [a, f] =
      gated_decoder(m, d, {{48000, 2560, 24, 20, 20, 4096}, 128, 7040, 1e-8, false, 3, {.theta = 100000.0}});
  m.constant(m.need(d.rope).pairing, Pairing::interleaved);
  m.flags("attention_bias", {&a.bias.q, &a.bias.k, &a.bias.v}, false);
  m.flags("mlp_bias", {&f.bias}, false);
}

void glm4(ConfigMap& m, Draft& d) {
  Attention& a =
      gated_decoder(m, d, {{151552, 4096, 40, 32, 2, 131072}, 128, 13696, 1.5625e-7, false, 151329, {10000.0, 0.5}})
          .attention;
  m.constant(m.need(d.rope).pairing, Pairing::interleaved);
  m.constant(d.block.placement, Placement::sandwich);
  m.flags("attention_bias", {&a.bias.q, &a.bias.k, &a.bias.v}, true);
}

NameMap glm4_names() {
  return joined({decoder_names(),
                 attention_names(),
                 {{"model.layers.{l}.input_layernorm.*", "mixer_norm.*"},
                  {"model.layers.{l}.post_self_attn_layernorm.*", "mixer_output_norm.*"},
                  {"model.layers.{l}.post_attention_layernorm.*", "ffn_norm.*"},
                  {"model.layers.{l}.post_mlp_layernorm.*", "ffn_output_norm.*"},
                  {"model.layers.{l}.mlp.gate_up_proj.*", "ffn.gate.* ffn.up.*"},
                  {"model.layers.{l}.mlp.down_proj.*", "ffn.down.*"}}});
}

/// OLMo 3: every fourth layer attends to all tokens, the others to a sliding window. RoPE scaling applies only to
/// layers without a window.
void olmo3(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {50304, 4096, 32, 32, {}, 2048});
  m.entry("head_dim", a.head_dim, {});
  gated(m, d.block.ffn, 11008);
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d, 1);
  attention_bias(m, a, false);
  m.constant(a.qk_norm, WholeQkNorm{});
  m.constant(d.block.placement, Placement::branch_post);
  m.entry("sliding_window", d.window, 4096);
  m.layer_types(d, [](int64_t layer) { return (layer + 1) % 4 != 0; });
  m.local_and_global_rope(d, 500000.0, 500000.0, "rope_theta", "rope_theta");
}

NameMap olmo3_names() {
  return joined({decoder_names(),
                 attention_names(),
                 gated_names(),
                 {{"model.layers.{l}.post_attention_layernorm.*", "mixer_output_norm.*"},
                  {"model.layers.{l}.post_feedforward_layernorm.*", "ffn_output_norm.*"}}});
}

void persimmon(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, 262144);
  m.entry("hidden_size", d.spec.d_model, 4096);
  layers(m, "num_hidden_layers", d, 36);
  m.entry("num_attention_heads", a.n_heads, 64);
  m.entry("max_position_embeddings", d.spec.context, 16384);
  PlainFfn& f = plain(m, d, "intermediate_size", 16384, "hidden_act", "relu2");
  const double eps = layer_norm(m, d, "layer_norm_eps", 1e-5).eps;
  tied(m, d, false);
  padding(m, d);
  m.rope(d, {25000.0, 0.5});
  m.constant(a.bias, {true, true, true, true});
  m.constant(f.bias, true);
  bool normed = !std::holds_alternative<NoQkNorm>(a.qk_norm);
  m.entry("qk_layernorm", normed, true);
  if (m.reading() && normed) a.qk_norm = PerHeadQkNorm{LayerNorm{.eps = eps}, false};
  m.ignore({"num_key_value_heads"});  // every query head has its own key and value head
}

NameMap persimmon_names() {
  return {{"model.embed_tokens.weight", "embedding.weight"},
          {"model.final_layernorm.*", "final_norm.*"},
          {"lm_head.*", "head.*"},
          {"model.layers.{l}.input_layernorm.*", "mixer_norm.*"},
          {"model.layers.{l}.post_attention_layernorm.*", "ffn_norm.*"},
          {"model.layers.{l}.self_attn.query_key_value.*", "mixer.q.* mixer.k.* mixer.v.*", Rows::kv_heads},
          {"model.layers.{l}.self_attn.dense.*", "mixer.o.*"},
          {"model.layers.{l}.self_attn.q_layernorm.*", "mixer.q_norm.*"},
          {"model.layers.{l}.self_attn.k_layernorm.*", "mixer.k_norm.*"},
          {"model.layers.{l}.mlp.dense_h_to_4h.*", "ffn.up.*"},
          {"model.layers.{l}.mlp.dense_4h_to_h.*", "ffn.down.*"}};
}

/// GPT-Neo: attention scores without 1/sqrt(head_dim). Layers attend to all tokens or to a sliding window.
void gpt_neo(ConfigMap& m, Draft& d) {
  auto& a = m.as<Attention>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, 50257);
  m.entry("hidden_size", d.spec.d_model, 2048);
  layers(m, "num_layers|num_hidden_layers", d, 24);
  m.entry("num_heads|num_attention_heads", a.n_heads, 16);
  m.entry("max_position_embeddings", d.spec.context, 2048);
  PlainFfn& f = plain(m, d, "intermediate_size", {}, "activation_function", "gelu_new");
  layer_norm(m, d, "layer_norm_epsilon", 1e-5);
  tied(m, d, true);
  m.as<LearnedPosition>(d.spec.position);
  m.constant(a.scale, 1.0);
  m.constant(a.bias.o, true);
  m.constant(f.bias, true);
  m.entry("window_size", d.window, 256);
  m.attention_types(d, [](int64_t layer) { return layer % 2 == 1; });
  m.ignore({"attention_layers", "embed_dropout", "resid_dropout", "summary_type", "summary_use_proj",
            "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "gradient_checkpointing"});
}

NameMap gpt_neo_names() {
  return {{"transformer.wte.weight", "embedding.weight"},
          {"transformer.wpe.weight", "position.weight"},
          {"transformer.h.{l}.ln_1.*", "mixer_norm.*"},
          {"transformer.h.{l}.attn.attention.q_proj.*", "mixer.q.*"},
          {"transformer.h.{l}.attn.attention.k_proj.*", "mixer.k.*"},
          {"transformer.h.{l}.attn.attention.v_proj.*", "mixer.v.*"},
          {"transformer.h.{l}.attn.attention.out_proj.*", "mixer.o.*"},
          {"transformer.h.{l}.ln_2.*", "ffn_norm.*"},
          {"transformer.h.{l}.mlp.c_fc.*", "ffn.up.*"},
          {"transformer.h.{l}.mlp.c_proj.*", "ffn.down.*"},
          {"transformer.ln_f.*", "final_norm.*"},
          {"lm_head.*", "head.*"}};
}

/// HunYuan: queries and keys are normalized after RoPE, not before.
void hunyuan(ConfigMap& m, Draft& d) {
  GatedDecoderDefaults otherwise{{290943, 4096, 32, 32, {}, 2048}, {}, 11008, 1e-5, false, 0};
  otherwise.rope.alpha = true;
  Attention& a = gated_decoder(m, d, otherwise).attention;
  m.constant(a.qk_norm, PerHeadQkNorm{.norm = {}, .own_weights = false, .after_rope = true});
  attention_bias(m, a, false);
  m.ignore({"eod_token_id"});
}

NameMap hunyuan_names() {
  return joined({{{"model.layers.{l}.self_attn.query_layernorm.*", "mixer.q_norm.*"},
                  {"model.layers.{l}.self_attn.key_layernorm.*", "mixer.k_norm.*"}},
                 llama_names()});
}

/// The default scaling if the file has none.
const RopeScaling& apertus_scaling() {
  static const RopeScaling kScaling = Llama3Scaling{.original_length = 8192};
  return kScaling;
}

/// Apertus: a feed-forward without a gate, and an activation with learned parameters.
void apertus(ConfigMap& m, Draft& d) {
  Attention& a = decoder(m, d, {131072, 4096, 32, 32, {}, 65536});
  auto& f = m.as<PlainFfn>(d.block.ffn);
  m.entry("intermediate_size", f.d_ff, 14336);
  std::string activation = "xielu";
  m.entry("hidden_act", activation, "xielu");
  if (activation != "xielu") m.fail("hidden_act", str("\"", activation.substr(0, 64), "\", expected xielu"));
  m.constant(f.xielu, Xielu{});
  rms(m, d, "rms_norm_eps", 1e-5);
  tied(m, d, false);
  padding(m, d, 3);
  RopeKeys keys{12000000.0};
  keys.scaling = &apertus_scaling();
  m.rope(d, keys);
  m.constant(a.qk_norm, PerHeadQkNorm{});
  attention_bias(m, a, false);
  m.only("mlp_bias", {"false"}, "the family has no biases of feed-forwards");
  m.only("qk_norm", {"true"}, "the family norms queries and keys");
  m.only("post_norm", {"false"}, "the family has pre-norm layers");
}

NameMap apertus_names() {
  return joined({decoder_names(),
                 attention_names(),
                 {{"model.layers.{l}.attention_layernorm.*", "mixer_norm.*"},
                  {"model.layers.{l}.feedforward_layernorm.*", "ffn_norm.*"},
                  {"model.layers.{l}.mlp.up_proj.*", "ffn.up.*"},
                  {"model.layers.{l}.mlp.act_fn.alpha_p", "ffn.xielu.alpha_p"},
                  {"model.layers.{l}.mlp.act_fn.alpha_n", "ffn.xielu.alpha_n"},
                  {"model.layers.{l}.mlp.down_proj.*", "ffn.down.*"}}});
}

constexpr ConstantTensor kXieluConstants[] = {
    {"model.layers.{l}.mlp.act_fn.beta", [](const Block& b) { return std::get<PlainFfn>(b.ffn).xielu->beta; }},
    {"model.layers.{l}.mlp.act_fn.eps", [](const Block& b) { return std::get<PlainFfn>(b.ffn).xielu->eps; }},
};

}  // namespace

std::vector<Family> llama_variants() {
  std::vector<Family> kin{
      {"arcee", "ArceeForCausalLM", arcee, llama_names()},
      {"seed_oss", "SeedOssForCausalLM", seed_oss, llama_names()},
      {"ernie4_5", "Ernie4_5ForCausalLM", ernie4_5, llama_names()},
      {"helium", "HeliumForCausalLM", helium, llama_names()},
      {"glm4", "Glm4ForCausalLM", glm4, glm4_names()},
      {"olmo3", "Olmo3ForCausalLM", olmo3, olmo3_names()},
      {"persimmon", "PersimmonForCausalLM", persimmon, persimmon_names()},
      {"gpt_neo", "GPTNeoForCausalLM", gpt_neo, gpt_neo_names()},
      {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", hunyuan, hunyuan_names()},
      {"apertus", "ApertusForCausalLM", apertus, apertus_names()},
  };
  kin.back().constants = kXieluConstants;
  return kin;
}

}  // namespace lamina::io::hf
