#pragma once

#include <functional>
#include <vector>

#include "lamina/comm/communicator.h"
#include "lamina/tensor/tensor.h"

/// Expert parallelism: the experts of a layer are divided over ranks (GShard, arXiv:2006.16668). All ranks must call
/// these functions in the same order.
namespace lamina::ops {

/// A callback that applies this rank's experts to rows.
///   rows     [n, width], sorted by expert
///   offsets  [held experts + 1] i64: boundaries of the experts' rows
///   returns  [n, width]
using RunExperts = std::function<Tensor(const Tensor& rows, const Tensor& offsets)>;

/// Sends every row to the rank that holds its expert (all-to-all), runs the experts there and returns their outputs to
/// the senders. Backward sends the gradients along the same routes. Reads `offsets` on the host, which synchronizes
/// with a GPU.
///   rows     [slots, width], sorted by expert; slots from offsets[experts] on are unused
///   offsets  [experts + 1] i64
///   held     number of experts of each rank, in rank order; Σ held = experts
///   returns  [slots, width], zeros in unused slots
Tensor run_divided_experts(const Tensor& rows, const Tensor& offsets, const std::vector<int64_t>& held,
                           comm::Communicator& ranks, const RunExperts& run);

/// balance_loss() (ops/moe/router_loss.h) for tokens divided over ranks: f_e counts the choices of all ranks, and P_e
/// is the mean over this rank's tokens. The mean of the ranks' results, weighted by their token counts, equals the loss
/// on one device.
///   logits  [tokens, experts]
///   counts  [experts] i64: how often this rank's tokens chose each expert
Tensor balance_loss_over_ranks(const Tensor& logits, const Tensor& counts, comm::Communicator& ranks);

}  // namespace lamina::ops
