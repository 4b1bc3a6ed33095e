#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Lightning attention (see arch::Lightning), computed by ops::ssd_scan with values as its inputs, keys as B, queries
/// as C, and step sizes 1. Caches one state [heads, head_dim, head_dim] per sequence.
std::unique_ptr<Mixer> make_lightning(const arch::ArchSpec& spec, const arch::Lightning& mixer,
                                      const ParameterFactory& make);

}  // namespace lamina::nn
