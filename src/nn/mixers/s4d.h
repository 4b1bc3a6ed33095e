#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// S4D: the diagonal state space model with input-independent dynamics (arXiv:2206.11893), with n = state / 2 complex
/// modes per channel:
///   (g, v) = out(gelu(ssm(x)))    y = σ(g) · v
///   log_dt, d [d_model], a_log, a_imag [d_model, n], c [d_model, n, 2], out [2·d_model, d_model], the gate first
/// Whole sequences run as a convolution with the state space kernel, or as a recurrence if that is less work.
std::unique_ptr<Mixer> make_s4d(int64_t d_model, const arch::S4d& spec, const ParameterFactory& make);

}  // namespace lamina::nn
