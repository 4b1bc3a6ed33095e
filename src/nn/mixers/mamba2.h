#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Mamba-2: a state space model with one decay per head (arXiv:2405.21060). With h heads, g groups, n = state:
///   (z, w, t) = in(x)    (u, b, c) = silu(conv(w))    Δ = clamp(softplus(t + dt_bias), dt_low, dt_high)
///   y = out(rms_norm(scan(u, Δ, −exp(a_log), b, c, d) · silu(z)))
///   in [2·d_inner + 2·g·n + h, d_model], conv [d_inner + 2·g·n, conv], dt_bias, a_log, d [h], norm [d_inner],
///   out [d_model, d_inner]
std::unique_ptr<Mixer> make_mamba2(int64_t d_model, const arch::Mamba2& spec, const ParameterFactory& make);

}  // namespace lamina::nn
