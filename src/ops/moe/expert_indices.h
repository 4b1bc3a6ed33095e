#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Returns expert indices [tokens, k] as contiguous i64. Throws an Error that names the first index outside [0,
/// experts). On a GPU the next synchronization throws it.
Tensor checked_expert_indices(const char* op, const Tensor& indices, int64_t experts);

namespace cpu {
/// position = the first index outside [0, experts), or −1.
void find_bad_index(const Tensor& indices, int64_t experts, int64_t& position);
}  // namespace cpu
namespace cuda {
/// Does nothing. On a GPU the kernels that use the indices report invalid ones, which saves a copy to the host.
inline void find_bad_index(const Tensor& /*indices*/, int64_t /*experts*/, int64_t& /*position*/) {}
/// counts[e] = number of indices equal to e; indices are contiguous i64, counts [experts] i64. Invalid indices are
/// reported.
void count_experts(const char* op, const Tensor& indices, const Tensor& counts);
}  // namespace cuda

}  // namespace lamina::ops
