#pragma once

#include <map>
#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/nn/model.h"

namespace lamina::train {

/// Gradients per micro-batch on a stage of an interleaved pipeline, which runs one chunk of its layers at a time. The
/// passes of a chunk come in order, so the tape can sum the gradients of its layers over micro-batches.
///
/// Weights outside of layers, such as shared position tables, may be used by several chunks, and passes of other
/// micro-batches run in between. Their gradients are kept separately per micro-batch until chunk 0, the last one in
/// backward.
class ChunkGradients {
 public:
  /// `parameters` are leaves of `tape`.
  ChunkGradients(Tape& tape, NamedTensors parameters, const nn::Model& model);

  /// Call before backward of a pass of `micro_batch`: gives the tape the gradients that keep() took from it.
  void restore(int64_t micro_batch);
  /// Call after that backward, unless it completed all gradients of the micro-batch.
  void keep(int64_t micro_batch);
  /// The parameters whose gradients are complete after backward of this chunk in the last pass of a micro-batch.
  const std::vector<bool>& completed_by(int chunk) const { return completed_by_[static_cast<size_t>(chunk)]; }

 private:
  Tape& tape_;
  NamedTensors outside_;                         ///< parameters outside of layers
  std::vector<std::vector<bool>> completed_by_;  ///< per chunk and parameter
  std::map<int64_t, std::vector<Tensor>> kept_;  ///< gradients of outside_, per micro-batch
};

}  // namespace lamina::train
