#pragma once

// The heads of a packed QKV projection in decoding over pages: loading and rotating queries, and the new key and value.

#include "lamina/ops/attention/paged/paged_decode_device.cuh"

namespace lamina::ops::cuda::paged {

/// Eight columns of a head of a token. fetch() starts all loads, so that they overlap with others; finish() converts
/// and rotates. Rotated halves or pairs consist of whole groups of eight columns.
struct HeadColumns {
  float x[8] = {};

  /// Starts the loads. If `turns`, the columns will be rotated by the angles of `position`.
  __device__ void fetch(const Params& p, int token, int head, int column, bool turns, int position) {
    rotates_ = turns && column < p.rotary_dim;
    const int64_t at = token * p.q_stride + static_cast<int64_t>(head) * p.d_qk + column;
    load(p, at, own_);
    if (!rotates_) return;
    const int half = p.rotary_dim / 2;
    second_half_ = !p.interleaved && column >= half;
    if (!p.interleaved) load(p, second_half_ ? at - half : at + half, other_);
    const bool per_pair = p.table_row < p.rotary_dim;
    const int first = !per_pair ? column : p.interleaved ? column / 2 : second_half_ ? column - half : column;
    const int64_t angle = static_cast<int64_t>(position) * p.table_row + first;
    load_angles(p.cos + angle, per_pair && p.interleaved, cosines_);
    load_angles(p.sin + angle, per_pair && p.interleaved, sines_);
  }
  __device__ void finish(const Params& p) {
    convert(p.q_type, own_, x);
    if (!rotates_) return;
    float other[8];
    if (p.interleaved) {
#pragma unroll
      for (int i = 0; i < 8; ++i) other[i] = x[i ^ 1];
    } else {
      convert(p.q_type, other_, other);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const bool second = p.interleaved ? i % 2 != 0 : second_half_;
      x[i] = rounded_to(p.q_type, fmaf(x[i], cosines_[i], other[i] * (second ? sines_[i] : -sines_[i])));
    }
  }

 private:
  __device__ static void load(const Params& p, int64_t at, uint4 (&to)[2]) {
    const auto* from = static_cast<const char*>(p.q) + at * (p.q_type == DType::f32 ? 4 : 2);
    to[0] = *reinterpret_cast<const uint4*>(from);
    if (p.q_type == DType::f32) to[1] = *reinterpret_cast<const uint4*>(from + 16);
  }
  __device__ static void convert(DType type, const uint4 (&from)[2], float (&to)[8]) {
    const uint32_t words[8] = {from[0].x, from[0].y, from[0].z, from[0].w, from[1].x, from[1].y, from[1].z, from[1].w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto half = static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16));
      to[i] = type == DType::f32    ? __uint_as_float(words[i])
              : type == DType::bf16 ? to_float(__ushort_as_bfloat16(half))
                                    : to_float(__ushort_as_half(half));
    }
  }
  /// Loads eight entries of a table or, if in_pairs, four entries that each serve two columns.
  __device__ static void load_angles(const float* from, bool in_pairs, float (&to)[8]) {
    const auto low = *reinterpret_cast<const float4*>(from);
    if (in_pairs) {
      to[0] = to[1] = low.x;
      to[2] = to[3] = low.y;
      to[4] = to[5] = low.z;
      to[6] = to[7] = low.w;
      return;
    }
    const auto high = *reinterpret_cast<const float4*>(from + 4);
    to[0] = low.x;
    to[1] = low.y;
    to[2] = low.z;
    to[3] = low.w;
    to[4] = high.x;
    to[5] = high.y;
    to[6] = high.z;
    to[7] = high.w;
  }

  uint4 own_[2] = {};
  uint4 other_[2] = {};
  float cosines_[8] = {};
  float sines_[8] = {};
  bool rotates_ = false;
  bool second_half_ = false;
};

/// The position of a row's new token for the rotation; 0 if nothing is rotated.
__device__ inline int64_t given_position(const Params& p, int row) { return p.rotary_dim > 0 ? p.positions[row] : 0; }
/// The position as an index into the tables. An invalid one is reported and replaced.
__device__ inline int checked_position(const Params& p, int64_t position) {
  if (p.rotary_dim == 0 || (position >= 0 && position < p.table_rows)) return static_cast<int>(position);
  lamina::cuda::report(p.faults, lamina::cuda::Fault::position, position);
  return 0;
}

/// The new key and value of a row in the cache's format. The block that attends to them reads them here instead of
/// waiting for its own stores to the cache.
template <class C, int kD>
struct NewToken {
  static constexpr int kKey = 0;
  static constexpr int kValue = 1;
  alignas(16) C columns[2][kD];
  float scales[2];

  /// Converts and stores the new key or value here and in the cache. Called by a whole warp with eight finished columns
  /// per lane, zeros beyond the head. Blocks that share the row's last split store the same bytes.
  __device__ void store(const Params& p, const RowWork& work, int row, int kv_head, int part, const float (&x)[8]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int column = lane * 8;
    const int position = work.length - 1;
    const int page = p.rows.page_of(row, position);
    if (page < 0 && lane == 0) lamina::cuda::report(p.faults, lamina::cuda::Fault::cache_place, position);
    const int64_t entry = p.rows.entry(max(page, 0), kv_head, position);
    const bool stores = page >= 0 && column < p.d_qk;
    C* to = static_cast<C*>(const_cast<void*>(part == kKey ? p.k : p.v)) + entry * p.d_qk + column;
    if constexpr (std::is_same_v<C, uint8_t>) {
      unsigned most = 0;  // bit patterns without the sign compare like magnitudes; NaN is the largest
#pragma unroll
      for (int i = 0; i < 8; ++i) most = max(most, __float_as_uint(fabsf(x[i])));
      const RowScale scale = row_scale(__uint_as_float(__reduce_max_sync(kAllLanes, most)));
      if (lane == 0) {
        scales[part] = scale.scale;
        if (page >= 0) const_cast<float*>(part == kKey ? p.k_scales : p.v_scales)[entry] = scale.scale;
      }
      lamina::cuda::Vec<uint8_t, 8> codes;
#pragma unroll
      for (int i = 0; i < 8; ++i) codes.values[i] = static_cast<uint8_t>(__float2int_rn(x[i] * scale.inverse) + 128);
      if (column < kD) lamina::cuda::store_vector_plain(columns[part] + column, codes);
      if (stores) lamina::cuda::store_vector_plain(to, codes);
    } else {
      lamina::cuda::Pack<C> pack;
      static_assert(lamina::cuda::Pack<C>::kSize == 8);
#pragma unroll
      for (int i = 0; i < 8; ++i) pack.values[i] = from_float<C>(x[i]);
      if (column < kD) lamina::cuda::store_pack(columns[part] + column, pack);
      if (stores) lamina::cuda::store_pack(to, pack);
    }
  }
};

}  // namespace lamina::ops::cuda::paged
