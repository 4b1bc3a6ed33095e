#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Choices [tokens, k] of experts as dense i64, every one in [0, experts); otherwise an Error that names the first that
/// is not.
Tensor checked_expert_indices(const char* op, const Tensor& indices, int64_t experts);

namespace cpu {
/// Position of the first index outside [0, experts), or -1.
void find_bad_index(const Tensor& indices, int64_t experts, int64_t& position);
}  // namespace cpu

}  // namespace lamina::ops
