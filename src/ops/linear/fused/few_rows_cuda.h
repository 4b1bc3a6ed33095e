#pragma once

#include "lamina/ops/linear/linear.h"

namespace lamina::ops {

/// Up to this many rows of x, a product on a GPU is bound by reading the weight.
constexpr int64_t kFewRows = 8;

namespace cuda {
/// linear_forward for at most kFewRows rows, in one launch. Returns false and does nothing for unsupported cases: more
/// rows, a weight whose rows are not contiguous or not a multiple of 16 bytes, or types other than equal ones or f32 x
/// with a bf16 weight.
bool linear_few_rows(const LinearForward& args);
}  // namespace cuda

}  // namespace lamina::ops
