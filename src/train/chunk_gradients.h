#pragma once

#include <map>
#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/nn/model.h"

namespace lamina::train {

/// Gradients by micro-batch of a stage of an interleaved pipeline, whose passes run a chunk of layers at a time. The
/// passes of a chunk come in order, so the gradients of its layers are summed over micro-batches as they come. Weights
/// outside of layers, such as shared tables of positions, may be used by several chunks, between which other
/// micro-batches run. Their gradients are kept apart until chunk 0, the last one in backward.
class ChunkGradients {
 public:
  /// `parameters` are leaves of `tape`.
  ChunkGradients(Tape& tape, NamedTensors parameters, const nn::Model& model);

  /// Before backward of a pass of `micro_batch`: restores the gradients that keep() took from the tape.
  void restore(int64_t micro_batch);
  /// After that backward, unless it completed all gradients of the micro-batch.
  void keep(int64_t micro_batch);
  /// Which parameters backward of a chunk completes in the last pass of a micro-batch.
  const std::vector<bool>& completed_by(int chunk) const { return completed_by_[static_cast<size_t>(chunk)]; }

 private:
  Tape& tape_;
  NamedTensors outside_;                         ///< parameters outside of layers
  std::vector<std::vector<bool>> completed_by_;  ///< by chunk and parameter
  std::map<int64_t, std::vector<Tensor>> kept_;  ///< gradients of outside_, by micro-batch
};

}  // namespace lamina::train
