#pragma once

#include "support/block_oracle.h"

namespace lamina::testing {

/// The Mamba-2 mixer as plain loops.
struct Mamba2Oracle {
  arch::Mamba2 m;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    using std::exp;
    const int64_t seq = x.dim(1);
    const int64_t inner = *m.d_inner;
    const int64_t n = m.state;
    const int64_t heads = inner / m.head_dim;
    const int64_t joined = inner + 2 * m.groups * n;
    Array<S> all = plain::linear(w, "mixer.in", x);
    if (!m.in_scales.empty()) scale_parts(all);
    const Array<S> z = plain::columns(all, 0, inner);
    const Array<S> ubc = plain::conv_silu(w, "mixer.conv", plain::columns(all, inner, joined));
    const Array<S> t_all = plain::columns(all, inner + joined, heads);
    Array<S> y(z.shape);
    for (int64_t b = 0; b < x.dim(0); ++b) {
      std::vector<S> state(static_cast<size_t>(inner * n), S(0));
      for (int64_t t = b * seq; t < (b + 1) * seq; ++t) {
        for (int64_t c = 0; c < inner; ++c) {
          const int64_t head = c / m.head_dim;
          const int64_t group = head / (heads / m.groups);
          S dt = plain::softplus(t_all[t * heads + head] + w.at("mixer.dt_bias")[head]);
          if (dt < S(m.dt_low)) dt = S(m.dt_low);
          if (m.dt_high && dt > S(*m.dt_high)) dt = S(*m.dt_high);
          const S decay = exp(dt * (S(0) - exp(w.at("mixer.a_log")[head])));
          const S u = ubc[t * joined + c];
          S sum = w.at("mixer.d")[head] * u;
          for (int64_t k = 0; k < n; ++k) {
            S& h = state[static_cast<size_t>(c * n + k)];
            h = decay * h + dt * u * ubc[t * joined + inner + group * n + k];
            sum += h * ubc[t * joined + inner + (m.groups + group) * n + k];
          }
          const bool gated_later = m.norm == arch::GatedNorm::before_gate;
          y[t * inner + c] = gated_later ? sum : sum * plain::silu(z[t * inner + c]);
        }
      }
    }
    if (m.norm != arch::GatedNorm::none) y = plain::rms_norm(w, "mixer.norm", y, m.norm_eps, m.norm_groups);
    for (int64_t i = 0; m.norm == arch::GatedNorm::before_gate && i < y.numel(); ++i) y[i] = y[i] * plain::silu(z[i]);
    return plain::linear(w, "mixer.out", y);
  }

  /// Multiplies the projected z, x, B, C and step sizes by their factors.
  template <class S>
  void scale_parts(Array<S>& all) const {
    const int64_t shared = m.groups * m.state;
    const int64_t widths[] = {*m.d_inner, *m.d_inner, shared, shared, *m.d_inner / m.head_dim};
    for (int64_t i = 0; i < all.numel(); ++i) {
      int64_t column = i % all.dim(-1);
      size_t part = 0;
      while (column >= widths[part]) column -= widths[part++];
      all[i] = all[i] * S(m.in_scales[part]);
    }
  }
};

}  // namespace lamina::testing
