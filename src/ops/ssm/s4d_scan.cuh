#pragma once

// Shared by the kernels of s4d_recurrence: the modes that a lane holds, and helpers for both directions.

#include "lamina/ops/ssm/s4d.h"
#include "lamina/ops/ssm/s4d_modes.cuh"
#include "lamina/ops/ssm/scan.cuh"
#include "lamina/ops/ssm/scan_shape.cuh"

namespace lamina::ops::cuda {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr const char* kS4dOp = "s4d_recurrence";

/// A discretized mode: z, the gain 2 c', and `whole` = z^segment_length, the decay over a segment.
struct S4dDiscreteMode {
  float2 z, gain, whole;
};

/// The modes of a channel that a lane holds.
struct S4dLane {
  int mine, part;
  int64_t channel;
  bool real;
  float2 z[kPerLane], gain[kPerLane];

  __device__ S4dLane(const ScanShape& shape, const S4dDiscreteMode* modes, int64_t first) {
    mine = threadIdx.x / shape.group;
    part = threadIdx.x % shape.group;
    channel = first + mine;
    real = channel < shape.channels;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      z[k] = gain[k] = make_float2(0, 0);
      if (!used(shape, k)) continue;
      const S4dDiscreteMode& mode = modes[channel * shape.n + number(k)];
      z[k] = mode.z;
      gain[k] = mode.gain;
    }
  }
  __device__ int64_t number(int k) const { return part * kPerLane + k; }
  __device__ bool used(const ScanShape& shape, int k) const { return real && number(k) < shape.n; }
  /// x = z · x + u
  __device__ void advance(float u, float2 (&x)[kPerLane]) const {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) x[k] = next(k, u, x[k]);
  }
  __device__ float2 next(int k, float u, float2 x) const {
    return make_float2(fmaf(-z[k].y, x.y, fmaf(z[k].x, x.x, u)), fmaf(z[k].y, x.x, z[k].x * x.y));
  }
};

/// Address of the lane's element k in a state [batch, channels, n, 2], the layout of users.
__device__ inline float2* outside(const ScanShape& shape, float* state, int64_t batch, const S4dLane& lane, int k) {
  return reinterpret_cast<float2*>(state) + (batch * shape.channels + lane.channel) * shape.n + lane.number(k);
}
/// Address of the real part of the lane's element k in states [rows, 2, n, channels], the layout of kernels. The
/// imaginary part is n · channels elements further.
__device__ inline float* inside(const ScanShape& shape, float* states, int64_t row, const S4dLane& lane, int k) {
  return states + (row * 2 * shape.n + lane.number(k)) * shape.channels + lane.channel;
}

/// Discretizes the modes: [channels · n] of S4dDiscreteMode, stored in a tensor.
Tensor s4d_discretise(const S4dParameters& parameters, const ScanShape& shape, const Device& device);

/// Propagates states across segments. On entry at[s] holds the contribution of segment s to a zero state; on return,
/// the state before segment s. `from` is the state before the first segment (null: zeros), `out` receives the one after
/// the last (may be null). If `backwards`, runs from the last segment to the first with conjugated decays, for
/// gradients.
void s4d_propagate_states(const Device& device, const ScanShape& shape, const S4dParameters& parameters,
                          const S4dDiscreteMode* modes, const float* from, bool backwards, float* at, float* out);

}  // namespace lamina::ops::cuda
