#include "lamina/arch/layers.h"
#include "lamina/arch/rules.h"

namespace lamina::arch {
namespace {

/// Calls fn(mixer, path) for every block whose mixer is a T.
template <class T, class F>
void for_mixers(const ArchSpec& spec, F&& fn) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (const auto* mixer = std::get_if<T>(&written.block->mixer)) fn(*mixer, written.path + ".mixer");
    const auto* both = std::get_if<AttentionMamba2>(&written.block->mixer);
    if (both == nullptr) continue;
    if constexpr (std::is_same_v<T, Attention>) fn(both->attention, written.path + ".mixer.attention");
    if constexpr (std::is_same_v<T, Mamba2>) fn(both->mamba2, written.path + ".mixer.mamba2");
  }
}

void head_dim_known(const ArchSpec& spec, Findings& findings) {
  for_mixers<Attention>(spec, [&](const Attention& a, const std::string& path) {
    if (!a.head_dim && a.n_heads > 0) {
      findings.note(path + ".n_heads", str(a.n_heads, " heads do not divide the width of their stack"));
    }
  });
}

void linear_heads_known(const ArchSpec& spec, Findings& findings) {
  for_mixers<Lightning>(spec, [&](const Lightning& m, const std::string& path) {
    if (!m.head_dim && m.n_heads > 0) {
      findings.note(path + ".n_heads", str(m.n_heads, " heads do not divide the width of their stack"));
    }
  });
}

void delta_heads_divide(const ArchSpec& spec, Findings& findings) {
  for_mixers<GatedDelta>(spec, [&](const GatedDelta& m, const std::string& path) {
    if (m.n_key_heads && *m.n_key_heads > 0 && m.n_heads % *m.n_key_heads != 0) {
      findings.note(path + ".n_key_heads", str(*m.n_key_heads, " does not divide n_heads ", m.n_heads));
    }
  });
}

void gate_is_plain(const ArchSpec& spec, Findings& findings) {
  for_mixers<Attention>(spec, [&](const Attention& a, const std::string& path) {
    const auto* longformer = std::get_if<LongformerPattern>(&a.pattern);
    const auto* blocks = std::get_if<BigBirdPattern>(&a.pattern);
    const bool plain = !(longformer != nullptr && longformer->global_projections) &&
                       !(blocks != nullptr && blocks->draw == BlockDraw::numpy) &&
                       !(a.position && std::holds_alternative<TransformerXl>(*a.position));
    if (a.gate && !plain) {
      findings.note(path + ".gate", "set, with global projections, numpy blocks or position transformer_xl");
    }
  });
}

void kv_heads_divide(const ArchSpec& spec, Findings& findings) {
  for_mixers<Attention>(spec, [&](const Attention& a, const std::string& path) {
    if (a.n_kv_heads && *a.n_kv_heads > 0 && a.n_heads % *a.n_kv_heads != 0) {
      findings.note(path + ".n_kv_heads", str(*a.n_kv_heads, " does not divide n_heads ", a.n_heads));
    }
  });
}

void mla_position(const ArchSpec& spec, Findings& findings) {
  for_mixers<Mla>(spec, [&](const Mla& a, const std::string& path) {
    if (!a.position) return;
    const bool fits = std::holds_alternative<Rope>(*a.position) || std::holds_alternative<NoPosition>(*a.position);
    if (!fits) findings.note(path + ".position", str(kind_of(*a.position), ", expected rope or none"));
  });
}

void mla_latent_smaller(const ArchSpec& spec, Findings& findings) {
  for_mixers<Mla>(spec, [&](const Mla& a, const std::string& path) {
    const double expanded =
        static_cast<double>(a.n_heads) * (static_cast<double>(a.qk_nope) + static_cast<double>(a.v_head_dim));
    if (a.n_heads > 0 && static_cast<double>(a.kv_lora_rank) > expanded) {
      findings.note(path + ".kv_lora_rank",
                    str(a.kv_lora_rank, " exceeds the ", expanded, " elements of keys and values expanded from it"));
    }
  });
}

void sparse_is_plain(const ArchSpec& spec, Findings& findings) {
  for_mixers<Attention>(spec, [&](const Attention& a, const std::string& path) {
    const bool relative = a.position && std::holds_alternative<TransformerXl>(*a.position);
    const bool plain = std::holds_alternative<FullPattern>(a.pattern) && !a.sinks;
    if (relative && !plain) {
      findings.note(path + ".pattern",
                    str(kind_of(a.pattern), a.sinks ? " with sinks" : "", " with position transformer_xl"));
    }
    if (relative && a.temperature) findings.note(path + ".temperature", "set, with position transformer_xl");
  });
}

void last_blocks_seen(const ArchSpec& spec, Findings& findings) {
  for_mixers<Attention>(spec, [&](const Attention& a, const std::string& path) {
    const auto* p = std::get_if<BigBirdPattern>(&a.pattern);
    if (p == nullptr || p->last_blocks == 0) return;
    if (a.causal.value_or(spec.causal)) {
      findings.note(path + ".pattern.last_blocks", str(p->last_blocks, " in causal attention, which cannot see them"));
    }
  });
  for_mixers<Mla>(spec, [&](const Mla& a, const std::string& path) {
    const auto* p = std::get_if<BigBirdPattern>(&a.pattern);
    if (p != nullptr && p->last_blocks > 0) {
      findings.note(path + ".pattern.last_blocks", str(p->last_blocks, " in latent attention, which is causal"));
    }
  });
}

/// Rule: draw numpy requires the fixed numbers of window, global and last blocks of the published code.
void numpy_blocks_published(const ArchSpec& spec, Findings& findings) {
  const auto numpy = [](const Pattern& pattern) {
    const auto* p = std::get_if<BigBirdPattern>(&pattern);
    return p != nullptr && p->draw == BlockDraw::numpy ? p : nullptr;
  };
  for_mixers<Mla>(spec, [&](const Mla& a, const std::string& path) {
    if (numpy(a.pattern) != nullptr) findings.note(path + ".pattern.draw", "numpy in latent attention");
  });
  for_mixers<Attention>(spec, [&](const Attention& a, const std::string& path) {
    const BigBirdPattern* p = numpy(a.pattern);
    if (p == nullptr) return;
    if (p->window_blocks != 1 || p->global_blocks != 1 || p->last_blocks != 1) {
      findings.note(path + ".pattern.draw", str("numpy with window_blocks ", p->window_blocks, ", global_blocks ",
                                                p->global_blocks, " and last_blocks ", p->last_blocks));
    }
    const bool plain = !a.sinks && !a.soft_cap && a.position &&
                       (std::holds_alternative<NoPosition>(*a.position) || std::holds_alternative<Rope>(*a.position));
    if (!plain) findings.note(path + ".pattern.draw", "numpy with sinks, a soft cap or biases of the scores");
  });
}

void ssm_heads_divide(const ArchSpec& spec, Findings& findings) {
  for_mixers<Mamba2>(spec, [&](const Mamba2& m, const std::string& path) {
    if (!m.d_inner || m.head_dim <= 0 || m.groups <= 0 || m.norm_groups <= 0) return;
    if (*m.d_inner % m.head_dim != 0) {
      findings.note(path + ".head_dim", str(m.head_dim, " does not divide d_inner ", *m.d_inner));
    } else if ((*m.d_inner / m.head_dim) % m.groups != 0) {
      findings.note(path + ".groups", str(m.groups, " does not divide the ", *m.d_inner / m.head_dim, " heads"));
    }
    if (*m.d_inner % m.norm_groups != 0) {
      findings.note(path + ".norm_groups", str(m.norm_groups, " does not divide d_inner ", *m.d_inner));
    }
  });
}

void lru_blocks_divide(const ArchSpec& spec, Findings& findings) {
  for_mixers<RgLru>(spec, [&](const RgLru& m, const std::string& path) {
    if (!m.width || m.blocks <= 0 || *m.width % m.blocks == 0) return;
    findings.note(path + ".blocks", str(m.blocks, " does not divide the width ", *m.width));
  });
}

void in_scales_complete(const ArchSpec& spec, Findings& findings) {
  for_mixers<Mamba2>(spec, [&](const Mamba2& m, const std::string& path) {
    if (m.in_scales.empty() || m.in_scales.size() == 5) return;
    findings.note(path + ".in_scales", str(m.in_scales.size(), " factors, expected 5"));
  });
}

void inner_width_known(const ArchSpec& spec, Findings& findings) {
  const auto check = [&](const auto& m, const std::string& path) {
    if (!m.d_inner) findings.note(path + ".expand", str(m.expand, " · d_model is not a valid width"));
  };
  for_mixers<Mamba>(spec, check);
  for_mixers<Mamba2>(spec, check);
}

void state_even(const ArchSpec& spec, Findings& findings) {
  for_mixers<S4d>(spec, [&](const S4d& m, const std::string& path) {
    if (m.state % 2 != 0) findings.note(path + ".state", str(m.state, " is odd"));
  });
}

void step_sizes_ordered(const ArchSpec& spec, Findings& findings) {
  const auto check = [&](const auto& m, const std::string& path) {
    if (m.dt_min > m.dt_max) findings.note(path + ".dt_min", str(m.dt_min, " is more than dt_max ", m.dt_max));
  };
  for_mixers<Mamba>(spec, check);
  for_mixers<Mamba2>(spec, check);
  for_mixers<S4d>(spec, check);
  for_mixers<Mamba2>(spec, [&](const Mamba2& m, const std::string& path) {
    if (m.dt_high && m.dt_low > *m.dt_high) {
      findings.note(path + ".dt_low", str(m.dt_low, " is more than dt_high ", *m.dt_high));
    }
  });
}

}  // namespace

std::vector<Rule> mixer_rules() {
  return {
      {"head_dim_known", "head_dim is given or n_heads divides d_model", "set head_dim, or use another number of heads",
       head_dim_known},
      {"linear_heads_known", "head_dim of linear attention is given or n_heads divides d_model",
       "set head_dim, or use another number of heads", linear_heads_known},
      {"delta_heads_divide", "n_key_heads divides n_heads of the gated delta rule", "use n_heads or a divisor",
       delta_heads_divide},
      {"gate_is_plain", "the output gate works with one set of projections and positions that are not relative",
       "set gate=false, or use another pattern or position", gate_is_plain},
      {"kv_heads_divide", "n_kv_heads divides n_heads", "use n_heads (multi-head), 1 (multi-query) or a divisor",
       kv_heads_divide},
      {"mla_position", "latent attention rotates its rope part or has no position", "use position rope or none",
       mla_position},
      {"mla_latent_smaller", "the latent is not wider than the keys and values expanded from it", "lower kv_lora_rank",
       mla_latent_smaller},
      {"sparse_is_plain", "relative attention over cached segments sees everything, without sinks or temperature",
       "use pattern full without sinks and temperature, or another position", sparse_is_plain},
      {"last_blocks_seen", "global blocks at the end need attention that is not causal",
       "set causal=false or last_blocks=0", last_blocks_seen},
      {"numpy_blocks_published", "draw numpy has one window block on each side, a first and a last global block",
       "set window_blocks, global_blocks and last_blocks to 1, without extras, or use draw philox",
       numpy_blocks_published},
      {"inner_width_known", "expand · d_model is a valid width", "set d_inner, or use an expand of about 2",
       inner_width_known},
      {"ssm_heads_divide", "head_dim divides d_inner, groups the heads, norm_groups d_inner", "use divisors",
       ssm_heads_divide},
      {"in_scales_complete", "there is a factor for each of z, x, B, C and the step sizes, or none at all",
       "give five factors, or an empty list", in_scales_complete},
      {"lru_blocks_divide", "blocks divides the width of the recurrence", "use a divisor", lru_blocks_divide},
      {"state_even", "a diagonal state consists of complex pairs", "use an even state", state_even},
      {"step_sizes_ordered", "step sizes are ordered: dt_min <= dt_max, dt_low <= dt_high", "swap the two values",
       step_sizes_ordered},
  };
}

}  // namespace lamina::arch
