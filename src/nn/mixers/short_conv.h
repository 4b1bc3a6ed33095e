#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Gated short convolution: out(c · conv(b · x)) with b, c, x [.., d_model] projected from the input.
///   "in.weight" [3 · d_model, d_model] (rows of b, c, x), "conv.weight" [d_model, taps], "out.weight" [d_model,
///   d_model], and biases if the spec has them
/// Its cache is the last taps − 1 inputs of the convolution.
std::unique_ptr<Mixer> make_short_conv(int64_t d_model, const arch::ShortConv& spec, const ParameterFactory& make);

}  // namespace lamina::nn
