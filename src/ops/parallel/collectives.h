#pragma once

#include <string_view>
#include <vector>

#include "lamina/comm/communicator.h"
#include "lamina/tensor/tensor.h"

/// Collectives with gradients (Megatron-LM's f and g, arXiv:1909.08053; sequence parallel, arXiv:2205.05198). All ranks
/// call them in the same order, in forward and in backward. Sums are ordered (comm::Order::ordered) and computed in the
/// accumulation type, so every rank gets the same bits.
namespace lamina::ops {

/// Σ over ranks of x, on every rank. Backward: the identity, because every rank continues with the whole sum and gets
/// its whole gradient.
Tensor sum_over_ranks(const Tensor& x, comm::Communicator& ranks, std::string_view label);

/// x itself, which is the same on every rank and which each rank uses for its own part of a computation. Backward: the
/// sum of the ranks' gradients.
Tensor share_with_ranks(const Tensor& x, comm::Communicator& ranks, std::string_view label);

/// Concatenates the ranks' parts along dimension 0, which each rank uses for its own part of a computation. Backward:
/// the sum of the ranks' gradients, of which each rank gets its own part (reduce-scatter).
///   x       [counts[rank], ...]
///   result  [Σ counts, ...]
Tensor gather_for_ranks(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts,
                        std::string_view label);

/// Sums x over ranks; each rank gets its part of dimension 0. Backward: all-gather of the parts' gradients.
///   x       [Σ counts, ...]
///   result  [counts[rank], ...]
Tensor scatter_sum(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts,
                   std::string_view label);

/// Concatenates the ranks' parts along dimension `axis` into a tensor that every rank uses in the same way. Backward:
/// the own part of the gradient.
///   x  [..., counts[rank], ...]
Tensor gather_copies(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& counts, int axis,
                     std::string_view label);

/// Sends send_counts[r] rows of x to each rank r and receives receive_counts[r] rows from it, both in rank order.
/// Backward: the rows' gradients travel back, labelled "<label> gradients".
///   x       [Σ send_counts, width]
///   result  [Σ receive_counts, width]
Tensor exchange_rows(const Tensor& x, comm::Communicator& ranks, const std::vector<int64_t>& send_counts,
                     const std::vector<int64_t>& receive_counts, std::string_view label);

/// x itself: a value that every rank computed in the same way from what share_with_ranks() or gather_for_ranks() gave.
/// Backward: 1/ranks of the gradient, because the sum over ranks would count it once per rank.
Tensor computed_by_all(const Tensor& x, int ranks);

}  // namespace lamina::ops
