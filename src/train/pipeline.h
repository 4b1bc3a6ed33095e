#pragma once

#include <functional>

#include "lamina/arch/tensor_shards.h"
#include "lamina/comm/communicator.h"
#include "lamina/nn/model.h"

namespace lamina::train {

/// A pass of an update through one chunk of the stage's layers (arch::PipelineStage::chunks).
struct StagePass {
  int64_t pass = 0;
  int chunk = 0;
};

/// Callbacks of a pipeline stage for the passes of an update. A model without stages counts as one stage, which
/// receives and sends nothing.
struct StagePasses {
  int64_t count = 0;  ///< number of passes, the same on every stage
  /// Allocates uninitialised memory for the residual stream of a pass.
  std::function<Tensor(int64_t pass)> states;
  /// Runs a pass forward. The argument is the residual stream of the previous layers (undefined for the first layers);
  /// the result is that of this stage's layers (undefined for the last layers).
  std::function<Tensor(const StagePass& at, const Tensor& states)> forward;
  /// Runs a pass backward, from the gradient of forward()'s result to that of its argument. Both may be undefined.
  std::function<Tensor(const StagePass& at, const Tensor& gradient)> backward;
};

/// Runs passes in the order 1F1B (PipeDream-Flush, arXiv:2104.04473): a stage starts with one forward for each stage
/// after it, then alternates between forward and backward. So a stage keeps the activations of at most as many passes
/// as there are stages from it to the end. Backwards run in the order of the passes. `stages` connects the stages;
/// null: one stage.
void run_one_forward_one_backward(comm::Communicator* stages, const StagePasses& passes);

/// Maximum number of passes whose activations a stage keeps at once.
int64_t passes_in_flight(const arch::PipelineStage& stage, int64_t passes);

/// Model::hidden() of a model that is divided into stages, without gradient. Returns the result on the last stage,
/// undefined on others. Every stage must call it with the same arguments. `stages` null: the model has one stage.
Tensor staged_hidden(nn::Model& model, comm::Communicator* stages, const Tensor& ids, const nn::RunOptions& run);
/// Cross entropy of a model that is divided into stages; arguments and result as for staged_hidden().
Tensor staged_cross_entropy(nn::Model& model, comm::Communicator* stages, const Tensor& ids, const Tensor& targets,
                            const nn::RunOptions& run);

}  // namespace lamina::train
