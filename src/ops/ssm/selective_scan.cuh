#pragma once

// Shared by the forward and backward kernels of selective_scan: their arguments, and propagation across segments.

#include "lamina/ops/ssm/scan.cuh"
#include "lamina/ops/ssm/scan_shape.cuh"
#include "lamina/ops/ssm/selective_scan_kernel.h"

namespace lamina::ops::cuda {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

template <class T>
struct ScanInputs {
  const T *u, *delta, *z;
  const float *a, *b, *c, *d, *bias;
  bool with_softplus;

  __device__ float raw_step(int64_t at, int64_t channel) const {
    return to_float(delta[at]) + (bias != nullptr ? bias[channel] : 0.0F);
  }
};

template <class T>
ScanInputs<DeviceType<T>> scan_inputs(const SelectiveScanForward& f) {
  return {device_data<T>(f.u),     device_data<T>(f.delta),          device_data<T>(f.z),
          device_data<float>(f.a), device_data<float>(f.b),          device_data<float>(f.c),
          device_data<float>(f.d), device_data<float>(f.delta_bias), f.delta_softplus};
}

/// States that a pass over the sequence reads and writes.
template <class T>
struct ScanStates {
  const float* initial = nullptr;  ///< [batch, channels, n], or null (zeros)
  const float* start = nullptr;    ///< [batch, segments, n, channels]: state before each segment, or null
  float* states = nullptr;         ///< [batch, chunks, n, channels]: state before each chunk, or null
  T* y = nullptr;
  float* last = nullptr;    ///< [batch, channels, n]
  float* ends = nullptr;    ///< [batch, segments, n, channels]: state after each segment
  float* totals = nullptr;  ///< [batch, segments, channels]: Σ Δ
};

/// Loads b or c of `count` positions to [tile, padded] in shared memory, padded with zeros.
__device__ inline void load_mixed(const ScanShape& shape, const float* from, int64_t batch, int64_t t0, int count,
                                  float* to) {
  const int padded = shape.padded();
  for (int i = threadIdx.x; i < count * padded; i += kScanThreads) {
    const int k = i % padded;
    to[i] = k < shape.n ? from[(batch * shape.seq + t0 + i / padded) * shape.n + k] : 0.0F;
  }
}

/// Propagates states across segments, or gradients of states if `backwards`. On entry at[s] holds the contribution of
/// segment s to a zero state; on return, the state before segment s. The first segment starts from `from` [batch,
/// channels, n] (null: zeros). The state after the last segment is written to `out` [batch, channels, n], if given.
void propagate_states(const Device& device, const ScanShape& shape, const float* a, const float* totals,
                      const float* from, bool backwards, float* at, float* out);

}  // namespace lamina::ops::cuda
