#pragma once

// Merging in decoding over pages: first the warps of a block, then the splits of a unit. Included by
// paged_decode_item.cuh.

#include "lamina/ops/attention/paged/paged_decode_item.cuh"

namespace lamina::ops::cuda::paged {

template <class C, class M, int kD, int kParts, int kTiles, int kWarps>
__device__ void DecodeBlock<C, M, kD, kParts, kTiles, kWarps>::merge_warps(const Piece& piece, State& state) {
  const RowWork& work = piece.work;
  const int splits = piece.splits;
  auto* values = reinterpret_cast<float*>(ring_);  // [kWarps, kRows, kPitch]
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float sum = state.sum[t][j];
#pragma unroll
      for (int step = 4; step < kWarp; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
      if (lane_ < 4) fixed_.stats[warp_][t * 8 + lane_ * 2 + j] = {state.most[t][j], sum};
    }
#pragma unroll
    for (int m = 0; m < State::kSteps; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = t * 8 + lane_ % 4 * 2 + i % 2;
        values[(warp_ * kRows + row) * kPitch + State::column(m, i, lane_)] = state.out[t][m][i];
      }
    }
  }
  __syncthreads();
  const int rows = query_rows(work);
  constexpr int kQuads = kD / 4;
  for (int n = thread_; n < rows * kQuads; n += kThreads) {
    const int row = n / kQuads;
    const int c = n % kQuads * 4;
    if (c >= p_.d_v) continue;  // d_v is a multiple of 8
    const float sink = splits == 1 ? sink_of(work, row) : kMinusLarge;
    float most = fmaxf(sink, kMinusLarge);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, fixed_.stats[w][row].x);
    float sum = sink > kMinusLarge ? fast_exp2(sink - most) : 0.0F;
    float value[4] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 found = fixed_.stats[w][row];
      const float weight = fast_exp2(found.x - most);
      sum = fmaf(weight, found.y, sum);
      const auto part = *reinterpret_cast<const float4*>(values + (w * kRows + row) * kPitch + c);
      value[0] = fmaf(weight, part.x, value[0]);
      value[1] = fmaf(weight, part.y, value[1]);
      value[2] = fmaf(weight, part.z, value[2]);
      value[3] = fmaf(weight, part.w, value[3]);
    }
    if (splits == 1) {
      const float inverse = sum != 0 ? 1.0F / sum : 0.0F;
#pragma unroll
      for (float& x : value) x *= inverse;
      store_four(p_.y, p_.q_type, y_at(work, row) + c, value);
    } else {
      store_four(p_.parts, DType::f32, (static_cast<int64_t>(piece.item) * kRows + row) * p_.d_v + c, value);
      if (c == 0) p_.part_sums[static_cast<int64_t>(piece.item) * kRows + row] = {most, sum};
    }
  }
}

template <class C, class M, int kD, int kParts, int kTiles, int kWarps>
__device__ void DecodeBlock<C, M, kD, kParts, kTiles, kWarps>::merge_splits(const Piece& piece) {
  const RowWork& work = piece.work;
  const int splits = piece.splits;
  const int first_item = piece.item - piece.split;
  __syncthreads();
  if (thread_ == 0) {
    __threadfence();
    int* counter = p_.counters + static_cast<int64_t>(row_) * p_.rows.n_kv_heads * p_.row_blocks + piece.unit;
    fixed_.last = atomicAdd(counter, 1) == splits - 1 ? 1 : 0;
    if (fixed_.last != 0) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  if (fixed_.last == 0) return;
  const int rows = query_rows(work);
  auto* weights = reinterpret_cast<float*>(ring_);  // [kRows, splits]
  for (int row = warp_; row < rows; row += kWarps) {
    const float2* sums = p_.part_sums + static_cast<int64_t>(first_item) * kRows + row;
    const float sink = sink_of(work, row);
    float most = fmaxf(sink, kMinusLarge);
    for (int s = lane_; s < splits; s += kWarp) most = fmaxf(most, __ldcg(sums + s * kRows).x);
    most = lamina::cuda::warp_max(most);
    float sum = 0;
    for (int s = lane_; s < splits; s += kWarp) {
      const float2 found = __ldcg(sums + s * kRows);
      weights[row * splits + s] = fast_exp2(found.x - most);
      sum = fmaf(weights[row * splits + s], found.y, sum);
    }
    sum = lamina::cuda::warp_sum(sum);
    if (sink > kMinusLarge) sum += fast_exp2(sink - most);
    if (lane_ == 0) fixed_.stats[0][row] = {sum != 0 ? 1.0F / sum : 0.0F, 0.0F};
  }
  __syncthreads();
  const int quads = p_.d_v / 4;  // d_v is a multiple of 8
  for (int n = thread_; n < rows * quads; n += kThreads) {
    const int row = n / quads;
    const int c = (n - row * quads) * 4;
    const float* from = p_.parts + (static_cast<int64_t>(first_item) * kRows + row) * p_.d_v + c;
    const int64_t hop = static_cast<int64_t>(kRows) * p_.d_v;
    float value[4] = {};
    constexpr int kBatch = 16;  // loads in flight
    for (int s0 = 0; s0 < splits; s0 += kBatch) {
      float4 part[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        part[i] = s0 + i < splits ? __ldcg(reinterpret_cast<const float4*>(from + (s0 + i) * hop)) : float4{};
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float weight = s0 + i < splits ? weights[row * splits + s0 + i] : 0.0F;
        value[0] = fmaf(weight, part[i].x, value[0]);
        value[1] = fmaf(weight, part[i].y, value[1]);
        value[2] = fmaf(weight, part[i].z, value[2]);
        value[3] = fmaf(weight, part[i].w, value[3]);
      }
    }
    const float inverse = fixed_.stats[0][row].x;
#pragma unroll
    for (float& x : value) x *= inverse;
    store_four(p_.y, p_.q_type, y_at(work, row) + c, value);
  }
}

}  // namespace lamina::ops::cuda::paged
