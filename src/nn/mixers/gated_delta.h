#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// The gated delta rule (see arch::GatedDelta). Caches the last inputs of the convolution and one state [heads,
/// key_dim, value_dim] per sequence.
std::unique_ptr<Mixer> make_gated_delta(int64_t d_model, const arch::GatedDelta& spec, const ParameterFactory& make);

}  // namespace lamina::nn
