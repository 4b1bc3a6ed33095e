#pragma once

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// FLOPs per token of one layer's attention scores and weighted values, or of its state space scan, averaged over a
/// sequence of this length. This is the layer's part of Flops::mixing.
double mixing_flops(const ArchSpec& spec, const Block& block, int64_t length);

}  // namespace lamina::arch
