#pragma once

#include <string_view>
#include <vector>

#include "lamina/comm/communicator.h"
#include "lamina/tensor/tensor.h"

/// Collectives with gradients, for tensor parallelism (f and g of Megatron-LM, arXiv:1909.08053) and sequence
/// parallelism (arXiv:2205.05198). All ranks must call them in the same order, in forward and in backward. Sums are
/// taken in rank order (comm::Order::ordered) and in the accumulation type, so every rank gets bit-identical results.
/// `label` names the call in error messages and must be the same on all ranks.
namespace lamina::ops {

/// All-reduce: returns the sum over ranks of x, on every rank. Backward: the identity, because every rank continues
/// with the whole sum and so has its whole gradient.
Tensor sum_over_ranks(const Tensor& x, comm::Communicator& ranks, std::string_view label);

/// Returns x itself. x is the same on every rank, and each rank uses it for its own part of a computation. Backward:
/// all-reduce, the sum of the ranks' gradients.
Tensor share_with_ranks(const Tensor& x, comm::Communicator& ranks, std::string_view label);

/// All-gather: concatenates the ranks' parts along dimension 0. Each rank uses the result for its own part of a
/// computation. Backward: reduce-scatter, where each rank gets its part of the sum of the ranks' gradients.
///   x       [counts[rank], ...]
///   result  [Σ counts, ...]
Tensor gather_for_ranks(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts,
                        std::string_view label);

/// Reduce-scatter: sums x over ranks and gives each rank its part of dimension 0. Backward: all-gather of the parts'
/// gradients.
///   x       [Σ counts, ...]
///   result  [counts[rank], ...]
Tensor scatter_sum(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts,
                   std::string_view label);

/// All-gather: concatenates the ranks' parts along dimension `axis`. Every rank must use the result in the same way.
/// Backward: the slice of the gradient that belongs to this rank's part, without communication.
///   x  [..., counts[rank], ...]
Tensor gather_copies(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts, int axis,
                     std::string_view label);

/// All-to-all: sends send_counts[r] rows of x to each rank r and receives receive_counts[r] rows from it, both in rank
/// order. Backward: sends the rows' gradients back, labelled "<label> gradients".
///   x       [Σ send_counts, width]
///   result  [Σ receive_counts, width]
Tensor exchange_rows(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& send_counts,
                     const std::vector<int64_t>& receive_counts, std::string_view label);

/// Returns x itself, a value that every rank computed identically from results of share_with_ranks() or
/// gather_for_ranks(). Backward: 1/ranks of the gradient, because their sum over ranks would otherwise count it once
/// per rank.
Tensor computed_by_all(const Tensor& x, int ranks);

}  // namespace lamina::ops
