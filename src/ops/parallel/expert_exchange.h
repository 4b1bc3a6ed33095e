#pragma once

#include <functional>
#include <vector>

#include "lamina/comm/communicator.h"
#include "lamina/tensor/tensor.h"

/// Experts divided over ranks (GShard, arXiv:2006.16668). All ranks call these functions in the same order.
namespace lamina::ops {

/// Computes rows with this rank's experts.
///   rows     [n, width], sorted by expert
///   offsets  [held experts + 1] i64: boundaries of the experts' rows
///   returns  [n, width]
using RunExperts = std::function<Tensor(const Tensor& rows, const Tensor& offsets)>;

/// Sends every row to the rank that holds its expert, runs the experts there and returns their outputs to the senders.
/// Gradients travel the same ways. Reads `offsets` on the host.
///   rows     [slots, width], sorted by expert; slots from offsets[experts] on are unused
///   offsets  [experts + 1] i64
///   held     experts of each rank, in rank order; Σ held = experts
///   returns  [slots, width], zeros in unused slots
Tensor run_divided_experts(const Tensor& rows, const Tensor& offsets, const std::vector<int64_t>& held,
                           comm::Communicator& ranks, const RunExperts& run);

/// balance_loss() (ops/moe/router_loss.h) in which f_e counts the choices of all ranks and P_e is the mean over this
/// rank's tokens. The mean over ranks, weighted by their tokens, is the loss of one device.
///   logits  [tokens, experts]
///   counts  [experts] i64: choices of this rank's tokens
Tensor balance_loss_over_ranks(const Tensor& logits, const Tensor& counts, comm::Communicator& ranks);

}  // namespace lamina::ops
