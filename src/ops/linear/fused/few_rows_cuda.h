#pragma once

#include "lamina/ops/linear/gated_linear_kernel.h"
#include "lamina/ops/linear/norm_linear_kernel.h"

namespace lamina::ops {

/// A product with at most this many rows of x on a GPU is limited by reading the weight.
constexpr int64_t kFewRows = 8;
/// Up to this many 16-bit rows, a gate may be part of the launch of a product with a quantized weight.
constexpr int64_t kMostGatedRows = 256;

namespace cuda {
// Products of at most kFewRows rows in one launch. Each returns false, without doing anything, unless it supports the
// case. There must be few rows. Rows of the weight must be contiguous and a multiple of 16 bytes. x and the weight must
// have one type, or x is f32 and the weight bf16.
bool linear_few_rows(const LinearForward& args);
bool gated_linear_few_rows(const GatedLinearForward& args);
/// Also returns false for unaligned addresses and for rows that are too long to be normalized by every block.
bool norm_linear_few_rows(const NormLinearForward& args);
}  // namespace cuda

}  // namespace lamina::ops
