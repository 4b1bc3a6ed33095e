#pragma once

#include <vector>

#include "lamina/arch/attention.h"
#include "lamina/nn/parameter_factory.h"

namespace lamina::nn {

/// ALiBi slopes 2^(−max_bias·h/n) · slope_scale for the heads h that this rank holds. `make` is the attention's
/// factory.
std::vector<float> alibi_slopes(const arch::Alibi& alibi, const arch::Attention& attention,
                                const ParameterFactory& make);

}  // namespace lamina::nn
