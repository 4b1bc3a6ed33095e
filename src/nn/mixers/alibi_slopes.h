#pragma once

#include <vector>

#include "lamina/arch/attention.h"
#include "lamina/nn/parameter_factory.h"

namespace lamina::nn {

/// Slopes 2^(−max_bias·h/n) · slope_scale of the heads that this rank holds. `make` is the attention's factory.
std::vector<float> alibi_slopes(const arch::Alibi& alibi, const arch::Attention& attention,
                                const ParameterFactory& make);

}  // namespace lamina::nn
