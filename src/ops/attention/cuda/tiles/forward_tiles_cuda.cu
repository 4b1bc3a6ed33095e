// Forward of the fallback kernels (tiles.cuh).
#include "lamina/ops/attention/cuda/tiles/tiles.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace tiles;  // NOLINT: kernel helpers

template <class T>
__global__ __launch_bounds__(kThreads) void forward_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ Staging staging;
  __shared__ float weights[kTile][kTile + 1];
  const int tiles = tiles_of(p.seq_q);
  const Task task(tiles, p.n_heads);
  const int q0 = (tiles - 1 - task.tile) * kTile;  // longest first: with a causal mask the last tiles see the most keys
  const int q1 = min(q0 + kTile, p.seq_q);
  const int slice = static_cast<int>(blockIdx.y) * kSlice;
  const int kv_head = task.head / p.group;
  const Place place;
  const Rows<T> q = rows_of<T>(p.q, p.q_at, task.b, q0, task.head, p.seq_q);
  const HeadBias bias = p.bias_of(task.head);
  const float sink = p.sinks == nullptr ? kMinusLarge : p.sinks[task.head];
  float most[kSide];
  float sum[kSide];
  float y[kSide][kSide] = {};
  Range seen[kSide];
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    most[i] = fmaxf(sink, kMinusLarge);
    sum[i] = sink > kMinusLarge ? 1.0F : 0.0F;
    seen[i] = q0 + place.row + i < q1 ? p.mask.keys(q0 + place.row + i) : Range{0, 0};
  }
  const int k_begin = max(p.mask.keys(q0).begin, 0) / kTile * kTile;
  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  for (int k0 = k_begin; k0 < k_end; k0 += kTile) {
    const Coverage coverage = p.mask.coverage(q0, q1, k0, min(k0 + kTile, p.seq_k));
    if (coverage == Coverage::none) continue;
    float s[kSide][kSide];
    multiply(q, rows_of<T>(p.k, p.k_at, task.b, k0, kv_head, p.seq_k), p.d_qk, staging, s);
    __syncthreads();  // the weights of the previous tile have been read
    const DropoutFactors kept(p, task.b, task.head, q0 + place.row, k0 + place.column);
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const int query = q0 + place.row + i;
      float row_max = most[i];
#pragma unroll
      for (int j = 0; j < kSide; ++j) {
        const int key = k0 + place.column + 16 * j;
        const bool see =
            query < q1 && key < p.seq_k && (coverage == Coverage::full || p.mask.allows(query, seen[i], key));
        s[i][j] = see ? biased_score(p, s[i][j], bias, query, key) : -INFINITY;
        row_max = fmaxf(row_max, s[i][j]);
      }
      row_max = warp_row_max(row_max);
      const float shrink = exp_of(most[i] - row_max);
      float part = 0;
#pragma unroll
      for (int j = 0; j < kSide; ++j) {
        const float weight = exp_of(s[i][j] - row_max);
        part += weight;
        weights[place.row + i][place.column + 16 * j] = weight * kept.of(i, j);
        y[i][j] *= shrink;
      }
      sum[i] = sum[i] * shrink + row_sum(part);
      most[i] = row_max;
    }
    add_product<false>(weights, rows_of<T>(p.v, p.v_at, task.b, k0, kv_head, p.seq_k), p.d_v, slice, staging, y);
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const float row_inv_sum = sum[i] != 0 ? 1.0F / sum[i] : 0.0F;
    for (int j = 0; j < kSide; ++j) y[i][j] *= row_inv_sum;
    if (slice == 0 && place.column == 0 && q0 + place.row + i < q1) {
      const int64_t at = p.statistics_row(task.b, task.head) + q0 + place.row + i;
      p.row_max[at] = most[i];
      p.row_inv_sum[at] = row_inv_sum;
    }
  }
  store_slice(static_cast<T*>(p.y) + p.y_at.at(task.b, q0, task.head), p.y_at.seq, q1 - q0, p.d_v, slice, y);
}

}  // namespace

template <class T>
void forward_by_tiles(const AttentionParams& p, cudaStream_t stream) {
  const dim3 grid = grid_of(p.seq_q, p.n_heads, p.batch, p.d_v);
  if (grid.x == 0) return;
  forward_kernel<DeviceType<T>><<<grid, kThreads, 0, stream>>>(p);
  lamina::cuda::check_launch("attention");
}

template void forward_by_tiles<float>(const AttentionParams&, cudaStream_t);
template void forward_by_tiles<bf16>(const AttentionParams&, cudaStream_t);
template void forward_by_tiles<f16>(const AttentionParams&, cudaStream_t);

}  // namespace lamina::ops::cuda
