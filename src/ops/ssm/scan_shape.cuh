#pragma once

// How the scans divide their work: the state of a channel over lanes, and the sequence over segments.

#include <algorithm>

#include "lamina/ops/ssm/selective_scan_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

constexpr int kScanThreads = 128;
constexpr int kPerLane = 4;        // state elements per lane
constexpr int kSmallestGroup = 4;  // lanes per channel, at least; a block then has at most 32 channels
constexpr int64_t kLargestState = int64_t{kPerLane} * lamina::cuda::kWarp;

inline void check_scan_size(const char* op, int64_t n) {
  LAMINA_CHECK(n <= kLargestState, op, ": the state has ", n, " elements per channel; a CUDA device supports at most ",
               kLargestState, "; use the CPU for larger states");
}

/// The sizes of a scan, and its division into lane groups, tiles and segments.
struct ScanShape {
  int64_t batch, seq, channels, n, chunks;
  int group = kSmallestGroup;  ///< lanes per channel
  int tile = 1;                ///< positions per tile: their inputs are in shared memory
  int64_t segments = 1, segment_length = 0;

  /// For inputs u [batch, seq, channels] and `states` state elements per channel.
  ScanShape(const Tensor& u, int64_t states, int sm_count)
      : batch(u.dim(0)), seq(u.dim(1)), channels(u.dim(2)), n(states), chunks((seq + kScanChunk - 1) / kScanChunk) {
    while (padded() < n) group *= 2;
    tile = tile_of(padded());
    // Segments cost a second pass, so they are used only if the channels alone keep too few SMs busy. A segment is a
    // whole number of chunks; there are enough segments for about eight blocks per SM.
    const int64_t blocks = std::max<int64_t>(batch * channel_blocks(), 1);
    const int64_t wanted = blocks >= 2 * sm_count ? 1 : (int64_t{8} * sm_count + blocks - 1) / blocks;
    const int64_t per_segment = std::max<int64_t>((chunks + wanted - 1) / wanted, 1);
    segment_length = per_segment * kScanChunk;
    segments = std::max<int64_t>((chunks + per_segment - 1) / per_segment, 1);
  }
  __host__ __device__ static constexpr int tile_of(int padded) { return padded >= 128 ? 8 : padded >= 64 ? 16 : 32; }
  /// Returns a copy in which the group is a compile-time constant if kGroup is not 0. The divisors derived from it are
  /// then constants, too.
  template <int kGroup>
  __device__ ScanShape with_static_group() const {
    ScanShape shape = *this;
    if constexpr (kGroup > 0) {
      shape.group = kGroup;
      shape.tile = tile_of(kPerLane * kGroup);
    }
    return shape;
  }
  __host__ __device__ int block_channels() const { return kScanThreads / group; }
  /// State elements per channel, including the zero padding to a whole group.
  __host__ __device__ int padded() const { return kPerLane * group; }
  int64_t channel_blocks() const { return (channels + block_channels() - 1) / block_channels(); }
  dim3 grid() const {
    return dim3(static_cast<unsigned>(channel_blocks()), static_cast<unsigned>(segments), static_cast<unsigned>(batch));
  }
};

}  // namespace lamina::ops::cuda
