#pragma once

#include <span>

#include "lamina/base/dtype.h"

namespace lamina::comm {

/// parts[0] ← the sum of all parts, element by element. The order is a binary tree over the ranks: part i takes part
/// i + 1 for even i, then i + 2 for multiples of 4, and so on. A group of 2^k neighbouring parts that starts at a
/// multiple of 2^k is summed by itself first. The sum of 8 parts therefore has the same bits if 1, 2, 4 or 8 ranks each
/// sum their own parts in this order before they meet. Overwrites the other parts.
/// Elements of bf16 are added in f32, in the order of the parts, and the sum is rounded once.
///   parts  pointers to `count` elements each
///   dtype  f32, f64, bf16 or i64
void ordered_sum(std::span<void* const> parts, int64_t count, DType dtype);

}  // namespace lamina::comm
