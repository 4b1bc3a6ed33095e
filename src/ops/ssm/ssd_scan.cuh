#pragma once

// Sizes and memory layout of an ssd_scan on a GPU, and per-position quantities that depend only on dt and a.

#include <algorithm>

#include "lamina/ops/linear/fused/tile_product.cuh"
#include "lamina/ops/ssm/scan.cuh"
#include "lamina/ops/ssm/ssd_scan_kernel.h"

namespace lamina::ops::cuda {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

/// One chunk of one head (or group) of one batch entry: q positions from `first` on.
struct SsdChunkAt {
  int64_t entry, chunk, head, group, first, q;
};

struct SsdShape {
  int64_t batch, seq, heads, p, groups, n, size, chunks, in_group;

  explicit SsdShape(const SsdForward& args)
      : batch(args.x.dim(0)),
        seq(args.x.dim(1)),
        heads(args.x.dim(2)),
        p(args.x.dim(3)),
        groups(args.b.dim(2)),
        n(args.b.dim(3)),
        size(std::min(args.options.chunk_size, std::max<int64_t>(seq, 1))),
        chunks((seq + size - 1) / size),
        in_group(heads / groups) {}

  static int64_t tiles(int64_t extent) { return (extent + kTile - 1) / kTile; }
  /// Grid with one block per item and per tile of rows × columns, where each chunk of each batch entry has `count`
  /// items.
  dim3 grid(int64_t count, int64_t rows, int64_t columns) const {
    return dim3(static_cast<unsigned>(batch * chunks * count), static_cast<unsigned>(std::max<int64_t>(tiles(rows), 1)),
                static_cast<unsigned>(std::max<int64_t>(tiles(columns), 1)));
  }
  __device__ SsdChunkAt of_head(int64_t block) const {
    SsdChunkAt at{block / heads / chunks, block / heads % chunks, block % heads, 0, 0, 0};
    at.group = at.head / in_group;
    at.first = at.chunk * size;
    at.q = min(size, seq - at.first);
    return at;
  }
  __device__ SsdChunkAt of_group(int64_t block) const {
    SsdChunkAt at{block / groups / chunks, block / groups % chunks, 0, block % groups, 0, 0};
    at.head = at.group * in_group;
    at.first = at.chunk * size;
    at.q = min(size, seq - at.first);
    return at;
  }
  /// Offset of a chunk's first position in x [batch, seq, heads, p]. Consecutive positions are heads · p apart.
  __device__ int64_t x_at(const SsdChunkAt& at) const { return ((at.entry * seq + at.first) * heads + at.head) * p; }
  __device__ int64_t x_stride() const { return heads * p; }
  /// Offset of a chunk's first position in b and c [batch, seq, groups, n].
  __device__ int64_t mixed_at(const SsdChunkAt& at) const {
    return ((at.entry * seq + at.first) * groups + at.group) * n;
  }
  __device__ int64_t mixed_stride() const { return groups * n; }
  /// Offset of a chunk's first position in per-position arrays [batch, heads, seq].
  __device__ int64_t position_at(const SsdChunkAt& at) const { return (at.entry * heads + at.head) * seq + at.first; }
  int64_t positions() const { return batch * heads * seq; }
  /// Offset of a chunk in the states [batch, chunks, heads, p, n].
  __device__ int64_t state_at(const SsdChunkAt& at) const {
    return ((at.entry * chunks + at.chunk) * heads + at.head) * p * n;
  }
  /// Offset of a chunk and group in c·b [batch, chunks, groups, size, size].
  __device__ int64_t gram_at(const SsdChunkAt& at) const {
    return ((at.entry * chunks + at.chunk) * groups + at.group) * size * size;
  }
};

/// Per-position quantities, each [batch, heads, seq]; `whole` is [batch, chunks, heads].
struct SsdSteps {
  const float* step;  ///< Δ
  const float* high;  ///< running sum s of Δ · a within the chunk, as high + low, so that differences are exact
  const float* low;
  const float* from_start;  ///< exp(s_t)
  const float* to_end;      ///< exp(s_end − s_t)
  const float* whole;       ///< exp(s_end)

  /// The decay exp(s_t − s_s) from position s to t of one chunk; `at` is the offset of the chunk's first position.
  __device__ float decay(int64_t at, int64_t t, int64_t s) const {
    return expf((high[at + t] - high[at + s]) + (low[at + t] - low[at + s]));
  }
};

/// The memory of SsdSteps.
struct SsdStepBuffers {
  Tensor positions;  ///< [5, batch, heads, seq]
  Tensor whole;
  SsdSteps steps() const {
    const float* first = positions.data<float>();
    const int64_t size = positions.numel() / 5;
    return {first, first + size, first + 2 * size, first + 3 * size, first + 4 * size, whole.data<float>()};
  }
};

/// Computes the step size Δ from dt.
struct SsdStepSize {
  const float* bias;  ///< [heads], or null
  bool with_softplus;
  float low, high;

  explicit SsdStepSize(const Tensor& dt_bias, const SsdExtras& options)
      : bias(device_data<float>(dt_bias)),
        with_softplus(options.dt_softplus),
        low(static_cast<float>(options.dt_min)),
        high(static_cast<float>(options.dt_max)) {}
  __device__ float raw(float dt, int64_t head) const { return bias != nullptr ? dt + bias[head] : dt; }
  __device__ float soft(float raw) const { return with_softplus ? softplus(raw) : raw; }
  /// Clamps; propagates NaN.
  __device__ float clamped(float soft) const { return soft < low ? low : soft > high ? high : soft; }
};

/// The whole forward scan in one launch (ssd_fused_cuda.cu). Returns false, without doing anything, if the case is not
/// supported.
bool ssd_fused(const SsdForward& args);
/// The whole backward scan in one launch (ssd_fused_backward_cuda.cu). Returns false, without doing anything, if the
/// case is not supported.
bool ssd_fused_backward(const SsdBackward& args);

SsdStepBuffers ssd_steps(const SsdForward& args);
/// The products c_t · b_s of every chunk and group, f32 [batch, chunks, groups, size, size]. Tiles above the diagonal
/// are not written.
Tensor ssd_gram(const SsdForward& args);
/// Propagates states across chunks, or gradients of states if `backwards`. On entry at[k] holds the contribution of
/// chunk k; on return, the state before it. `state` [batch, heads, p, n] is the state before the first chunk and is
/// overwritten by the one after the last.
void ssd_propagate_states(const SsdShape& shape, const Device& device, const float* whole, bool backwards, float* at,
                          float* state);

}  // namespace lamina::ops::cuda
