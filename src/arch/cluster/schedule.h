#pragma once

#include <cstdint>
#include <vector>

namespace lamina::arch {

/// A forward or backward pass of one micro-batch through one chunk of layers.
struct PipelinePass {
  bool forward = true;
  int64_t micro_batch = 0;
  int64_t chunk = 0;  ///< chunk of the stage
  double start = 0;   ///< seconds
  double end = 0;     ///< seconds
};

/// Durations that a schedule is made of, in seconds.
struct PipelineTimes {
  std::vector<double> forward;   ///< of one chunk, for each stage
  std::vector<double> backward;  ///< like forward
  double send = 0;               ///< of one message between stages
};

/// Passes of every stage in the order in which it runs them, with their times: 1F1B for one chunk per stage, else
/// interleaved (arXiv:2104.04473). A pass starts when its stage is free and its input has arrived. With several chunks
/// `micro_batches` must be a multiple of the number of stages.
std::vector<std::vector<PipelinePass>> simulate_pipeline(const PipelineTimes& times, int64_t micro_batches,
                                                         int64_t chunks);

}  // namespace lamina::arch
