#pragma once

#include "lamina/comm/communicator.h"

namespace lamina::comm {

/// Arguments of calls, checked the same way by every communicator. Each throws Error with the operation's name.
void check_tensor(Operation operation, const Tensor& x, bool meta);
/// counts has one entry >= 0 for each of `size` ranks; `whole` has their sum of elements and `part` counts[rank].
void check_counts(Operation operation, const std::vector<int64_t>& counts, int rank, int size, const Tensor& whole,
                  const Tensor& part);
/// A sum exists for this dtype.
void check_sum(Operation operation, const Tensor& x);
/// `peer` is a rank of the group.
void check_peer(Operation operation, int peer, int size);
/// colors has one entry for each rank.
void check_colors(const std::vector<int>& colors, int size);

}  // namespace lamina::comm
