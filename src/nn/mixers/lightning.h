#pragma once

#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Lightning attention as arch::Lightning describes it, computed with ops::ssd_scan: values are its inputs, keys and
/// queries its B and C, and the step sizes are 1. It caches one state [heads, head_dim, head_dim] per sequence.
std::unique_ptr<Mixer> make_lightning(const arch::ArchSpec& spec, const arch::Lightning& mixer,
                                      const ParameterFactory& make);

}  // namespace lamina::nn
