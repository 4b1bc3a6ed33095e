#pragma once

#include "lamina/ops/linear/linear.h"

namespace lamina::ops {

/// Rows of x up to which a product on a GPU is a matter of reading the weight.
constexpr int64_t kFewRows = 8;

namespace cuda {
/// linear_forward for at most kFewRows rows, in one launch. False, with nothing done, for what its kernel does not
/// take: more rows, columns of the weight that are dense rather than its rows, rows that are no multiple of 16 bytes,
/// types other than one for both sides or x in f32 with a weight in bf16.
bool linear_few_rows(const LinearForward& args);
}  // namespace cuda

}  // namespace lamina::ops
