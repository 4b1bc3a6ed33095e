#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// The recurrent block of Griffin (arXiv:2402.19427): out(gelu(y) · lru(conv(x))), where x and y [.., width] are
/// projections of the input and lru is ops::rg_lru. The gates of lru are block-diagonal projections of the
/// convolution's output.
///   "x", "y" [width, d_model], "conv" [width, taps], "input_gate", "recurrence_gate" [blocks, in, out], "decay"
///   [width], "out" [d_model, width]; projections, convolution and gates have biases
/// Its cache holds the last inputs of the convolution, the state, and whether the sequence has begun.
std::unique_ptr<Mixer> make_rg_lru(int64_t d_model, const arch::RgLru& spec, const ParameterFactory& make);

}  // namespace lamina::nn
