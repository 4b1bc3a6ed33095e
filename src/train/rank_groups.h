#pragma once

#include <memory>

#include "lamina/comm/communicator.h"
#include "lamina/nn/model.h"
#include "lamina/tensor/device.h"
#include "lamina/train/layout.h"

namespace lamina::train {

/// The groups of ranks that a layout divides its processes into. Rank ((p · dp + d) · cp + c) · tp + t is
/// tensor-parallel rank t, context-parallel rank c and data-parallel rank d of pipeline stage p: tensor-parallel ranks
/// are neighbours, then context-parallel ones. Data-parallel ranks with the same d / ep divide the experts.
///
/// Context-parallel ranks hold the same weights and compute different tokens, as data-parallel ones do: both are in
/// `data`, which sums gradients and divides the state (ZeRO).
struct RankGroups {
  std::shared_ptr<comm::Communicator> all;           ///< all ranks of the layout; null: one device
  std::shared_ptr<comm::Communicator> data;          ///< ranks with the same part of the model, except for experts
  std::shared_ptr<comm::Communicator> same_experts;  ///< those of `data` that hold the same experts
  /// Ranks that hold one model together, in the order of arch::ModelGrid; null: each has all of it.
  std::shared_ptr<comm::Communicator> model;
  std::shared_ptr<const nn::TensorParallel> tensor;   ///< ranks with the same part of the batch; null: none
  std::shared_ptr<const nn::ExpertParallel> experts;  ///< ranks that divide the experts; null: each has all
  std::shared_ptr<comm::Communicator> stages;         ///< the stages of this pipeline, in order; null: one stage
  std::shared_ptr<comm::Communicator> context;        ///< ranks that share sequences; null: each has whole ones
  int chunks = 1;                                     ///< groups of layers on each stage

  /// Which rows of a batch this rank computes: its number among the data-parallel ranks.
  int batch_part() const { return data->rank() / (context ? context->size() : 1); }

  /// Options of the part of the model that this rank holds.
  nn::ModelOptions model_options(DType dtype, uint64_t seed) const;
};

/// The groups of this process. `given` connects all ranks of the layout; a layout of one rank needs none, and on a meta
/// device the ranks are rehearsed.
RankGroups rank_groups(const LayoutChoice& layout, const Device& device, std::shared_ptr<comm::Communicator> given);

}  // namespace lamina::train
