#include "lamina/io/hf/family.h"

namespace lamina::io::hf {
namespace {

using namespace arch;  // NOLINT: almost all names here are from arch

/// Maps the keys common to Mamba and Mamba-2. M is the mixer type.
template <class M>
M& state_space(ConfigMap& m, Draft& d, const DecoderSizes& sizes, int64_t state, bool tie) {
  auto& mixer = m.as<M>(d.block.mixer);
  m.entry("vocab_size", d.spec.vocab_size, sizes.vocab_size);
  m.entry("hidden_size", d.spec.d_model, sizes.d_model);
  layers(m, "num_hidden_layers", d, sizes.n_layers);
  m.entry("state_size", mixer.state, state);
  m.entry("conv_kernel", mixer.conv, 4);
  int64_t expand = static_cast<int64_t>(mixer.expand);
  m.entry("expand", expand, 2);
  m.constant(mixer.expand, static_cast<double>(expand));
  m.entry("use_bias", mixer.bias, false);
  m.entry("use_conv_bias", mixer.conv_bias, true);
  m.entry("time_step_min", mixer.dt_min, 0.001);
  m.entry("time_step_max", mixer.dt_max, 0.1);
  rms(m, d, "layer_norm_epsilon", 1e-5);
  tied(m, d, tie);
  m.constant(d.block.ffn, NoFfn{});
  m.only("hidden_act", {"\"silu\""}, "other functions of the gate are not read");
  m.only("rms_norm", {"true"}, "other norms are not read");
  m.ignore({"residual_in_fp32", "rescale_prenorm_residual", "time_step_floor", "time_step_scale",
            "time_step_init_scheme", "fused_add_norm", "pad_vocab_size_multiple", "ssm_cfg", "intermediate_size",
            "d_inner", "d_model", "n_layer"});
  return mixer;
}

void mamba(ConfigMap& m, Draft& d) {
  auto& mixer = state_space<Mamba>(m, d, {50280, 768, 32, 0, {}, 0}, 16, true);
  m.number_or_auto("time_step_rank", mixer.dt_rank);
  m.ignore({"use_mambapy", "use_associative_scan"});
}

/// Mamba with additional RMS norms that have no weights.
void falcon_mamba(ConfigMap& m, Draft& d) {
  mamba(m, d);
  auto& mixer = std::get<Mamba>(d.block.mixer);
  m.entry("mixer_rms_eps", m.as<RmsNormNoParams>(m.need(mixer.norm)).eps, 1e-6);
  m.ignore({"use_falcon_mambapy"});
}

void mamba2(ConfigMap& m, Draft& d) {
  auto& mixer = state_space<Mamba2>(m, d, {32768, 4096, 64, 0, {}, 0}, 128, false);
  m.entry("head_dim", mixer.head_dim, 64);
  m.entry("n_groups", mixer.groups, 8);
  m.entry("chunk_size", mixer.chunk, 256);
  m.limits("time_step_limit", mixer.dt_low, mixer.dt_high);
  m.constant(mixer.norm_eps, m.as<RmsNorm>(d.spec.norm).eps);
  int64_t heads = mixer.d_inner && mixer.head_dim > 0 ? *mixer.d_inner / mixer.head_dim : 128;
  m.entry("num_heads", heads, 128);
  const double inner = mixer.expand * static_cast<double>(d.spec.d_model);
  if (m.reading() && static_cast<double>(heads) * static_cast<double>(mixer.head_dim) != inner) {
    m.fail("num_heads", str(heads, " heads of ", mixer.head_dim, " are not expand · hidden_size, ", inner));
  }
  m.ignore({"time_step_rank", "norm_before_gate"});
}

NameMap mamba_names() {
  return {{"backbone.embeddings.weight", "embedding.weight"},
          {"backbone.layers.{l}.norm.weight", "mixer_norm.weight"},
          {"backbone.layers.{l}.mixer.in_proj.*", "mixer.in.*"},
          {"backbone.layers.{l}.mixer.conv1d.*", "mixer.conv.*", Rows::whole, Form::conv},
          {"backbone.layers.{l}.mixer.x_proj.weight", "mixer.x.weight"},
          {"backbone.layers.{l}.mixer.dt_proj.*", "mixer.dt.*"},
          {"backbone.layers.{l}.mixer.dt_bias", "mixer.dt_bias"},
          {"backbone.layers.{l}.mixer.A_log", "mixer.a_log"},
          {"backbone.layers.{l}.mixer.D", "mixer.d"},
          {"backbone.layers.{l}.mixer.norm.weight", "mixer.norm.weight"},
          {"backbone.layers.{l}.mixer.out_proj.*", "mixer.out.*"},
          {"backbone.norm_f.weight", "final_norm.weight"},
          {"lm_head.weight", "head.weight"}};
}

}  // namespace

std::vector<Family> state_space_kin() {
  return {
      {"mamba", "MambaForCausalLM", mamba, mamba_names(), false},
      {"mamba2", "Mamba2ForCausalLM", mamba2, mamba_names(), false},
      {"falcon_mamba", "FalconMambaForCausalLM", falcon_mamba, mamba_names(), false},
  };
}

}  // namespace lamina::io::hf
