#pragma once

#include "lamina/comm/communicator.h"

namespace lamina::comm {

/// Checks of arguments, the same for every communicator. Each throws an Error that names the operation.
void check_tensor(Operation operation, const Tensor& x, bool meta);
/// `counts` needs one entry >= 0 for each of `size` ranks. `whole` must have their sum of elements, and `part` must
/// have counts[rank].
void check_counts(Operation operation, const std::vector<int64_t>& counts, int rank, int size, const Tensor& whole,
                  const Tensor& part);
/// The dtype must support sums.
void check_sum(Operation operation, const Tensor& x);
/// `peer` must be a rank of the group.
void check_peer(Operation operation, int peer, int size);
/// `colors` needs one entry for each rank.
void check_colors(const std::vector<int>& colors, int size);

}  // namespace lamina::comm
