#pragma once

#include "lamina/tensor/cuda/runtime.h"

namespace lamina::cuda {

/// Counters in the device's memory that are zero between launches: the block that brings one to its end sets it back.
/// Use attached<Counters>(device); kernels of one stream follow each other, so all share the same ones.
class Counters {
 public:
  static constexpr int64_t kCount = 65536;

  explicit Counters(int index) {
    LAMINA_CUDA(cudaSetDevice(index), "counters");
    LAMINA_CUDA(cudaMalloc(reinterpret_cast<void**>(&counters_), kCount * sizeof(int)), "counters");
    LAMINA_CUDA(cudaMemset(counters_, 0, kCount * sizeof(int)), "counters");
  }
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  ~Counters() { cudaFree(counters_); }

  int* data() const { return counters_; }

 private:
  int* counters_ = nullptr;
};

}  // namespace lamina::cuda
