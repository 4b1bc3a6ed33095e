#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Choices [tokens, k] of experts as dense i64, every one in [0, experts); otherwise an Error that names the first that
/// is not. On a cuda device the error comes with the next wait for it.
Tensor checked_expert_indices(const char* op, const Tensor& indices, int64_t experts);

namespace cpu {
/// Position of the first index outside [0, experts), or -1.
void find_bad_index(const Tensor& indices, int64_t experts, int64_t& position);
}  // namespace cpu
namespace cuda {
/// Nothing is read back only to be checked: the kernels that take the indices report those that name no expert.
inline void find_bad_index(const Tensor& /*indices*/, int64_t /*experts*/, int64_t& /*position*/) {}
/// counts[e], i64 [experts], is how often indices (dense i64) name expert e; others are reported and not counted.
void count_experts(const char* op, const Tensor& indices, const Tensor& counts);
}  // namespace cuda

}  // namespace lamina::ops
