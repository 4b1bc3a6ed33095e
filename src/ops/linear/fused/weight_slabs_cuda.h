#pragma once

#include "lamina/ops/linear/gated_linear_kernel.h"
#include "lamina/ops/linear/linear_kernel.h"

namespace lamina::ops::cuda {

// Products of few bf16 or f16 rows with a weight of the same type, streamed by TMA. Each returns false, without doing
// anything, for unsupported cases: more than 48 rows (8 for gated units), rows that are not contiguous or not a
// multiple of 16 bytes, interleaved gates, or a GPU without TMA.
bool linear_weight_slabs(const LinearForward& args);
bool gated_linear_weight_slabs(const GatedLinearForward& args);

/// True if these kernels are the fastest for a call that they support.
bool prefers_weight_slabs(const LinearForward& args);
bool prefers_weight_slabs(const GatedLinearForward& args);

}  // namespace lamina::ops::cuda
