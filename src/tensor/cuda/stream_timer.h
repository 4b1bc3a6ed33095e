#pragma once

#include <algorithm>
#include <limits>

#include "lamina/tensor/cuda/runtime.h"

namespace lamina::cuda {

/// Times work on a CUDA stream, synchronously.
class StreamTimer {
 public:
  explicit StreamTimer(cudaStream_t stream) : stream_(stream) {
    LAMINA_CUDA(cudaEventCreate(&begin_), "timing");
    LAMINA_CUDA(cudaEventCreate(&end_), "timing");
  }
  ~StreamTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  /// Shortest time of `rounds` runs of `work`, in seconds.
  template <class F>
  double min_seconds(int rounds, const F& work) const {
    float least = std::numeric_limits<float>::max();
    for (int round = 0; round < rounds; ++round) {
      cudaEventRecord(begin_, stream_);
      work();
      cudaEventRecord(end_, stream_);
      cudaEventSynchronize(end_);
      float milliseconds = 0;
      cudaEventElapsedTime(&milliseconds, begin_, end_);
      least = std::min(least, milliseconds);
    }
    return static_cast<double>(least) * 1e-3;
  }
  /// Shortest time per call if `calls` calls run as one captured CUDA graph. Excludes the launch overhead of the host,
  /// but includes gaps between the kernels of a library.
  template <class F>
  double min_graph_seconds(int rounds, int calls, const F& work) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t recording = nullptr;
    LAMINA_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "timing");
    for (int call = 0; call < calls; ++call) work();
    LAMINA_CUDA(cudaStreamEndCapture(stream_, &graph), "timing");
    const cudaError_t status = cudaGraphInstantiate(&recording, graph, 0);
    cudaGraphDestroy(graph);
    LAMINA_CUDA(status, "timing");
    const double seconds = min_seconds(rounds, [&] { cudaGraphLaunch(recording, stream_); });
    cudaGraphExecDestroy(recording);
    return seconds / calls;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace lamina::cuda
