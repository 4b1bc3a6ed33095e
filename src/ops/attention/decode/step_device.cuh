#pragma once

// Additions of a decoding step (attention_step) to decoding: prefetch of cached keys and values, rotation of the
// queries, and the key and value of the new token. The block with the last split rotates, rounds, stores and uses
// these.

#include "lamina/ops/attention/cache_scales.h"
#include "lamina/ops/attention/decode/decode_device.cuh"
#include "lamina/tensor/cuda/prefetch.cuh"

namespace lamina::ops::cuda {

/// Prefetches this split's keys and values to the L2 cache while the previous kernel still computes the new token. The
/// cache position is only a hint here: it may be stale, and is read again later.
template <class T>
__device__ void prefetch_split(const DecodeParams& p, int b, int kv_head) {
  constexpr int kMostEach = 16;
  if (p.mask.kind != DeviceMask::Kind::full) return;
  const int64_t place = lamina::cuda::load_relaxed_l2(static_cast<const int64_t*>(p.lengths) + b);
  const int keys = static_cast<int>(min(max(place, int64_t{0}), static_cast<int64_t>(p.capacity)));
  const int each = keys_of_share(p, keys + 1);
  const int begin = min(static_cast<int>(blockIdx.x) * each, keys);
  const int bytes = (min(begin + each, keys) - begin) * p.d_qk * static_cast<int>(sizeof(T));
  const int64_t at = p.cache_at(b, kv_head, begin, p.d_qk) * static_cast<int64_t>(sizeof(T));
  constexpr int kSector = 32;
  int offset = static_cast<int>(threadIdx.x) * kSector;
  for (int n = 0; n < kMostEach && offset < bytes; ++n, offset += kDecodeThreads * kSector) {
    lamina::cuda::prefetch_l2(static_cast<const char*>(p.k) + at + offset);
    lamina::cuda::prefetch_l2(static_cast<const char*>(p.v) + at + offset);
  }
}
/// Prefetches the cos and sin of the new token's position.
__device__ inline void prefetch_angles(const DecodeParams& p, int b) {
  const int column = static_cast<int>(threadIdx.x) * kColumns;
  if (p.rotary_dim == 0 || column >= p.table_row) return;
  const int64_t position = lamina::cuda::load_relaxed_l2(p.positions + b);
  const int64_t row = min(max(position, int64_t{0}), static_cast<int64_t>(p.table_rows - 1));
  lamina::cuda::prefetch_l2(p.cos + row * p.table_row + column);
  lamina::cuda::prefetch_l2(p.sin + row * p.table_row + column);
}

/// Loads eight numbers of q's dtype as floats; zeros if not `inside`.
__device__ inline void load_columns(const DecodeParams& p, int64_t at, bool inside, float (&out)[kColumns]) {
  if (p.q_type == DType::f32) {
    RawColumns<float> raw;
    raw.load(static_cast<const float*>(p.q) + at, inside);
    raw.unpack(out);
  } else if (p.q_type == DType::bf16) {
    RawColumns<__nv_bfloat16> raw;
    raw.load(static_cast<const __nv_bfloat16*>(p.q) + at, inside);
    raw.unpack(out);
  } else {
    RawColumns<__half> raw;
    raw.load(static_cast<const __half*>(p.q) + at, inside);
    raw.unpack(out);
  }
}

/// Rotation of a lane's columns: y = x·cos + other·sin, where `other` is the paired column. With half-split pairing,
/// each half of the rotary dimension consists of whole lanes.
struct LaneRotation {
  bool is_rotated;
  float cos[kColumns];
  float sin[kColumns];  // negated in the first column of a pair

  /// The column that is paired with a lane's first column, for half-split pairing.
  __device__ static int partner_of(const DecodeParams& p, int column) {
    const int half = p.rotary_dim / 2;
    return column >= half ? column - half : column + half;
  }

  __device__ LaneRotation(const DecodeParams& p, int64_t position, int column) {
    is_rotated = column < p.rotary_dim;
    const int half = p.rotary_dim / 2;
    const bool second = column >= half;
    if (!is_rotated) return;
    if (position < 0 || position >= p.table_rows) {
      lamina::cuda::report(p.faults, lamina::cuda::Fault::position, position);
      position = 0;
    }
    const int64_t row = position * p.table_row;
    const bool per_pair = p.table_row < p.rotary_dim;
    if (p.interleaved && per_pair) {
      const float4 c = *reinterpret_cast<const float4*>(p.cos + row + column / 2);
      const float4 s = *reinterpret_cast<const float4*>(p.sin + row + column / 2);
      const float cosines[4] = {c.x, c.y, c.z, c.w};
      const float sines[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
      for (int k = 0; k < kColumns; ++k) {
        cos[k] = cosines[k / 2];
        sin[k] = k % 2 == 0 ? -sines[k / 2] : sines[k / 2];
      }
      return;
    }
    const int64_t first = row + (per_pair && second ? column - half : column);
#pragma unroll
    for (int k = 0; k < kColumns; k += 4) {
      const float4 c = *reinterpret_cast<const float4*>(p.cos + first + k);
      const float4 s = *reinterpret_cast<const float4*>(p.sin + first + k);
      const float cosines[4] = {c.x, c.y, c.z, c.w};
      const float sines[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool negative = p.interleaved ? i % 2 == 0 : !second;
        cos[k + i] = cosines[i];
        sin[k + i] = negative ? -sines[i] : sines[i];
      }
    }
  }

  __device__ void apply(const DecodeParams& p, float (&x)[kColumns], const float (&split)[kColumns]) const {
    float other[kColumns];
#pragma unroll
    for (int k = 0; k < kColumns; ++k) other[k] = p.interleaved ? x[k ^ 1] : split[k];
#pragma unroll
    for (int k = 0; k < kColumns; ++k) x[k] = lamina::cuda::rounded_to(p.q_type, fmaf(x[k], cos[k], other[k] * sin[k]));
  }
};

/// The key and value of the new token in the cache's format, in shared memory.
template <class T>
struct StepToken {
  RawColumns<T> columns[2][kWarp];  // eight columns per lane
  float scales[2];                  // scales of an 8-bit cache
};

struct NoStep {
  __device__ NoStep(const DecodeParams& /*p*/, int /*b*/, int /*kv_head*/, int /*first_row*/, int /*column*/) {}
};
/// Inputs of a lane from the previous kernel, including the paired columns for half-split pairing. All loads are issued
/// at once, so nothing later waits for memory. Warp 0 loads the new key and warp 1 the new value, even if the block
/// does not need them.
template <int kRows>
struct StepLane {
  float others[kRows][kColumns];
  float token[kColumns];
  float token_others[kColumns];

  __device__ StepLane(const DecodeParams& p, int b, int kv_head, int first_row, int column) {
    const int partner = LaneRotation::partner_of(p, column);
    const bool split = column < p.rotary_dim && !p.interleaved;
    load_queries<kRows>(p, b, kv_head, first_row, split ? partner : p.d_qk, others);
    const int part = static_cast<int>(threadIdx.x) / kWarp;
    const bool inside = part < 2 && static_cast<int>(threadIdx.x) % kWarp < p.lanes && column < p.d_qk;
    const int64_t at = b * p.q_stride + static_cast<int64_t>(p.n_heads + part * p.n_kv_heads + kv_head) * p.d_qk;
    load_columns(p, at + column, inside, token);
    load_columns(p, at + partner, inside && split && part == 0, token_others);
  }
};

/// Rotates, rounds and publishes the new token in shared memory. If `stores`, the block also writes it to the KV
/// caches.
template <int kRows, class T>
__device__ void take_token(const DecodeParams& p, int b, int kv_head, int place, int column, const LaneRotation& turn,
                           bool stores, StepLane<kRows>& lane_of, StepToken<T>& token) {
  const int part = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (part >= 2) return;
  const bool inside = lane < p.lanes && column < p.d_qk;
  float(&x)[kColumns] = lane_of.token;
  if (part == 0 && turn.is_rotated) turn.apply(p, x, lane_of.token_others);
  __syncwarp();
  if constexpr (std::is_same_v<T, uint8_t>) {
    unsigned most = 0;  // bit patterns without the sign compare like magnitudes; NaN is the largest
#pragma unroll
    for (int k = 0; k < kColumns; ++k) most = max(most, __float_as_uint(fabsf(x[k])));
    const RowScale scale = row_scale(__uint_as_float(__reduce_max_sync(kAllLanes, most)));
#pragma unroll
    for (int k = 0; k < kColumns; ++k) x[k] *= scale.inverse;
    if (lane == 0) {
      token.scales[part] = scale.scale;
      float* scales = const_cast<float*>(part == 0 ? p.k_scales : p.v_scales);
      if (stores) scales[p.cache_at(b, kv_head, place, 1)] = scale.scale;
    }
  }
  if (!inside) return;
  RawColumns<T> packed;
  packed.pack(x);
  token.columns[part][lane] = packed;
  T* cache = static_cast<T*>(const_cast<void*>(part == 0 ? p.k : p.v));
  if (stores) packed.store(cache + p.cache_at(b, kv_head, place, p.d_qk) + column);
}

/// Rotates the queries. If this block's split ends with the new token (`owns`, uniform over the block), also prepares
/// the token.
template <int kRows, class T>
__device__ void begin_step(const DecodeParams& p, int b, int kv_head, int first_row, int column, int64_t position,
                           bool owns, int place, StepLane<kRows>& lane, float (&q)[kRows][kColumns],
                           StepToken<T>& token) {
  const LaneRotation turn(p, position, column);
  if (turn.is_rotated) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) turn.apply(p, q[r], lane.others[r]);
  }
  if (!owns) return;
  take_token<kRows, T>(p, b, kv_head, place, column, turn, first_row == 0, lane, token);
  __syncthreads();
}

}  // namespace lamina::ops::cuda
