#pragma once

#include <cstdint>
#include <vector>

namespace lamina::arch {

/// A forward or backward pass of one micro-batch through one chunk of layers.
struct PipelinePass {
  bool forward = true;
  int64_t micro_batch = 0;
  int64_t chunk = 0;  ///< index of the chunk on its stage
  double start = 0;   ///< seconds
  double end = 0;     ///< seconds
};

/// Durations from which a schedule is simulated, in seconds.
struct PipelineTimes {
  std::vector<double> forward;   ///< duration of the forward of one chunk, per stage
  std::vector<double> backward;  ///< duration of the backward of one chunk, per stage
  double send = 0;               ///< duration of one message between two stages
};

/// The passes of every stage in execution order, with their times: 1F1B if each stage has one chunk, otherwise the
/// interleaved schedule (arXiv:2104.04473). A pass starts when its stage is free and its input has arrived. With
/// several chunks, `micro_batches` must be a multiple of the number of stages.
std::vector<std::vector<PipelinePass>> simulate_pipeline(const PipelineTimes& times, int64_t micro_batches,
                                                         int64_t chunks);

}  // namespace lamina::arch
