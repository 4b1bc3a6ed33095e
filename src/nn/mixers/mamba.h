#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Mamba: the selective state space model (arXiv:2312.00752), with r = dt_rank, n = state:
///   (h, z) = in(x)    u = silu(conv(h))    (t, b, c) = x(u)    Δ = softplus(dt(t))
///   y = out(scan(u, Δ, −exp(a_log), b, c, d) · silu(z))
///   in [2·d_inner, d_model], conv [d_inner, conv], x [r + 2n, d_inner], dt [d_inner, r] with bias,
///   a_log [d_inner, n], d [d_inner], out [d_model, d_inner]
std::unique_ptr<Mixer> make_mamba(int64_t d_model, const arch::Mamba& spec, const ParameterFactory& make);

}  // namespace lamina::nn
