#pragma once

#include "lamina/nn/mixers/state_cache.h"

namespace lamina::nn {

/// Token shift: mix · x_t + (1 − mix) · x_{t−1} per channel, computed as a causal convolution with two taps.
///   x       [batch, seq, d_model]; the token before the first comes from `states`, or is zero
///   mix     [d_model]
Tensor token_shift(const Tensor& x, const Tensor& mix, const StateCache* states);

/// Stores the last position of x in `states` for the next call. Does nothing if `states` is null.
void keep_last_token(const Tensor& x, StateCache* states);

}  // namespace lamina::nn
