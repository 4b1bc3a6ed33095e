#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Expert indices [tokens, k] as contiguous i64, each in [0, experts); throws an Error that names the first that is
/// not. On a GPU the error is thrown by the next synchronization.
Tensor checked_expert_indices(const char* op, const Tensor& indices, int64_t experts);

namespace cpu {
/// Position of the first index outside [0, experts), or -1.
void find_bad_index(const Tensor& indices, int64_t experts, int64_t& position);
}  // namespace cpu
namespace cuda {
/// Does nothing: the kernels that use the indices report invalid ones, so that nothing is read back to the host.
inline void find_bad_index(const Tensor& /*indices*/, int64_t /*experts*/, int64_t& /*position*/) {}
/// counts[e], i64 [experts] = number of indices (contiguous i64) equal to e; invalid ones are only reported.
void count_experts(const char* op, const Tensor& indices, const Tensor& counts);
}  // namespace cuda

}  // namespace lamina::ops
