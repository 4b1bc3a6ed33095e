#pragma once

#include "lamina/ops/linear/gated_linear_kernel.h"
#include "lamina/ops/linear/norm_linear_kernel.h"

namespace lamina::ops {

/// A product with at most this many rows of x on a GPU is limited by reading the weight.
constexpr int64_t kFewRows = 8;
/// Up to this many 16-bit rows, a gate may be part of the launch of a product with a quantized weight.
constexpr int64_t kMostGatedRows = 256;

namespace cuda {
// Products of at most kFewRows rows in one launch. Each returns false, without doing anything, for unsupported cases:
// more rows; a weight whose rows are not contiguous or not a multiple of 16 bytes; other types than equal ones or f32 x
// with a bf16 weight.
bool linear_few_rows(const LinearForward& args);
bool gated_linear_few_rows(const GatedLinearForward& args);
/// Also returns false for unaligned addresses and for rows that are too long to be normalized by every block.
bool norm_linear_few_rows(const NormLinearForward& args);
}  // namespace cuda

}  // namespace lamina::ops
