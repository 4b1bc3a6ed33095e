#pragma once

#include <span>

#include "lamina/base/dtype.h"

namespace lamina::comm {

/// sum ← the sum of all parts, element by element, in a fixed order: a binary tree over the ranks. For even i, part i +
/// 1 is added to part i; then for multiples of 4, part i + 2 is added to part i; and so on. So a group of 2^k adjacent
/// parts that starts at a multiple of 2^k is summed on its own first. The sum of 8 parts is therefore bit-identical no
/// matter whether 1, 2, 4 or 8 ranks first sum their own parts in this order.
///
/// bf16 elements are added in f32, in the order of the parts, and the sum is rounded once.
///   parts  pointers to `count` elements each
///   sum    `count` elements; may be one of the parts
///   dtype  f32, f64, bf16 or i64
void ordered_sum(std::span<const void* const> parts, void* sum, int64_t count, DType dtype);

}  // namespace lamina::comm
