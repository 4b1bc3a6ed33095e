#pragma once

#include "lamina/ops/linear/gated_linear_kernel.h"
#include "lamina/ops/linear/norm_linear_kernel.h"

namespace lamina::ops {

/// Up to this many rows of x, a product on a GPU is bound by reading the weight.
constexpr int64_t kFewRows = 8;
/// Up to this many 16-bit rows, gates may be part of the launch of a product with a quantized weight.
constexpr int64_t kMostGatedRows = 256;

namespace cuda {
// Products of at most kFewRows rows in one launch. Each returns false and does nothing for unsupported cases: more
// rows, a weight whose rows are not contiguous or not a multiple of 16 bytes, or types other than equal ones or f32 x
// with a bf16 weight.
bool linear_few_rows(const LinearForward& args);
bool gated_linear_few_rows(const GatedLinearForward& args);
/// Does not support unaligned addresses and rows too long for every block to normalise, either.
bool norm_linear_few_rows(const NormLinearForward& args);
}  // namespace cuda

}  // namespace lamina::ops
