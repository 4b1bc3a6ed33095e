#pragma once

#include <memory>

#include "lamina/comm/communicator.h"
#include "lamina/nn/model.h"
#include "lamina/tensor/device.h"
#include "lamina/train/layout.h"

namespace lamina::train {

/// The groups into which a layout divides its processes. Rank ((p · dp + d) · cp + c) · tp + t is tensor-parallel rank
/// t, context-parallel rank c and data-parallel rank d of pipeline stage p. So tensor-parallel ranks are adjacent, then
/// context-parallel ones. Data-parallel ranks with the same d / ep divide the experts.
///
/// Context-parallel ranks, like data-parallel ones, hold the same weights and compute different tokens. So both are in
/// `data`, which sums gradients and divides the state (ZeRO).
struct RankGroups {
  std::shared_ptr<comm::Communicator> all;           ///< all ranks of the layout; null: a single device
  std::shared_ptr<comm::Communicator> data;          ///< ranks with the same part of the model, except experts
  std::shared_ptr<comm::Communicator> same_experts;  ///< the ranks of `data` with the same experts
  /// The ranks that hold one model together, in the order of arch::ModelGrid. Null: each rank has the whole model.
  std::shared_ptr<comm::Communicator> model;
  std::shared_ptr<const nn::TensorParallel> tensor;   ///< tensor-parallel ranks; they compute the same rows; null: none
  std::shared_ptr<const nn::ExpertParallel> experts;  ///< ranks that divide the experts; null: each rank has all
  std::shared_ptr<comm::Communicator> stages;         ///< stages of this rank's pipeline, in order; null: one stage
  std::shared_ptr<comm::Communicator> context;        ///< ranks that divide sequences; null: rows are not divided
  int chunks = 1;                                     ///< number of chunks of layers per stage

  /// Index of this rank among the data-parallel ranks; determines the rows of a batch that it computes.
  int batch_part() const { return data->rank() / (context ? context->size() : 1); }

  /// Options for the part of the model that this rank holds.
  nn::ModelOptions model_options(DType dtype, uint64_t seed) const;
};

/// The groups of this process. `given` connects all ranks of the layout. A layout of one rank needs none, and on a meta
/// device several ranks are simulated.
RankGroups rank_groups(const LayoutChoice& layout, const Device& device, std::shared_ptr<comm::Communicator> given);

}  // namespace lamina::train
