#pragma once

#include "lamina/nn/mixers/state_cache.h"

namespace lamina::nn {

/// Token shift: mix · x_t + (1 − mix) · x_{t−1} per channel, as a causal convolution of two taps.
///   x       [batch, seq, d_model]   before the first position are the states' inputs, or zeros
///   mix     [d_model]
Tensor token_shift(const Tensor& x, const Tensor& mix, const StateCache* states);

/// Keeps the last position of x for the next call; does nothing without states.
void keep_last_token(const Tensor& x, StateCache* states);

}  // namespace lamina::nn
