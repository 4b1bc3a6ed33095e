// Backward of the fallback kernels (tiles.cuh) in two passes: dk and dv per key tile, dq per query tile.
#include "lamina/ops/attention/cuda/tiles/tiles.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace tiles;  // NOLINT: kernel helpers

/// Computes weights and score gradients of one tile. Input: s = q·k and dp = dy·v. Output: s holds the weights after
/// dropout, dp the gradient of scale · q·k, and `direct` (if not null) the gradient of the score after the soft cap.
__device__ void find_gradients(const AttentionParams& p, int b, int head, int q0, int q1, int k0, bool partial,
                               float s[kSide][kSide], float dp[kSide][kSide], float (*direct)[kSide]) {
  const Place place;
  const HeadBias bias = p.bias_of(head);
  const DropoutFactors kept(p, b, head, q0 + place.row, k0 + place.column);
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const int query = q0 + place.row + i;
    const bool inside = query < q1;
    const int64_t at = p.statistics_row(b, head) + query;
    const float row_max = inside ? p.row_max[at] : 0.0F;
    const float row_inv_sum = inside ? p.row_inv_sum[at] : 0.0F;
    const float delta = inside ? p.delta[at] : 0.0F;
    const Range seen = inside ? p.mask.keys(query) : Range{0, 0};
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const int key = k0 + place.column + 16 * j;
      const bool see = inside && key < p.seq_k && (!partial || p.mask.allows(query, seen, key));
      float slope = 1.0F;
      const float weight =
          see ? exp_of(biased_score(p, s[i][j], bias, query, key, &slope) - row_max) * row_inv_sum : 0.0F;
      const float factor = kept.of(i, j);
      const float grad = see ? weight * (dp[i][j] * factor - delta) : 0.0F;
      s[i][j] = weight * factor;
      dp[i][j] = grad * slope;
      if (direct != nullptr) direct[i][j] = grad;
    }
  }
}

__device__ void put(const float values[kSide][kSide], float (*to)[kTile + 1]) {
  const Place place;
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
#pragma unroll
    for (int j = 0; j < kSide; ++j) to[place.row + i][place.column + 16 * j] = values[i][j];
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void key_gradient_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ Staging staging;
  __shared__ float square[kTile][kTile + 1];
  const Task task(tiles_of(p.seq_k), p.n_kv_heads);
  const int k0 = task.tile * kTile;
  const int k1 = min(k0 + kTile, p.seq_k);
  const int slice = static_cast<int>(blockIdx.y) * kSlice;
  const Rows<T> k = rows_of<T>(p.k, p.k_at, task.b, k0, task.head, p.seq_k);
  const Rows<T> v = rows_of<T>(p.v, p.v_at, task.b, k0, task.head, p.seq_k);
  float dk[kSide][kSide] = {};
  float dv[kSide][kSide] = {};
  const int q_begin = max(p.mask.queries(k0).begin, 0) / kTile * kTile;
  const int q_end = min(p.mask.queries(k1 - 1).end, p.seq_q);
  for (int h = 0; h < p.group; ++h) {
    const int head = task.head * p.group + h;
    for (int q0 = tiles_of(q_end) * kTile - kTile; q0 >= q_begin; q0 -= kTile) {
      const int q1 = min(q0 + kTile, p.seq_q);
      const Coverage coverage = p.mask.coverage(q0, q1, k0, k1);
      if (coverage == Coverage::none) continue;
      const Rows<T> q = rows_of<T>(p.q, p.q_at, task.b, q0, head, p.seq_q);
      const Rows<T> dy = rows_of<T>(p.dy, p.y_at, task.b, q0, head, p.seq_q);
      float s[kSide][kSide];
      float ds[kSide][kSide];
      multiply(q, k, p.d_qk, staging, s);
      multiply(dy, v, p.d_v, staging, ds);
      find_gradients(p, task.b, head, q0, q1, k0, coverage == Coverage::partial, s, ds, nullptr);
      __syncthreads();  // the previous contents of `square` have been read
      put(s, square);
      add_product<true>(square, dy, p.d_v, slice, staging, dv);
      __syncthreads();
      put(ds, square);
      add_product<true>(square, q, p.d_qk, slice, staging, dk);
    }
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) dk[i][j] *= p.scale;
  }
  store_slice(static_cast<T*>(p.dk) + p.dk_at.at(task.b, k0, task.head), p.dk_at.seq, k1 - k0, p.d_qk, slice, dk);
  store_slice(static_cast<T*>(p.dv) + p.dv_at.at(task.b, k0, task.head), p.dv_at.seq, k1 - k0, p.d_v, slice, dv);
}

/// Adds a tile of score gradients to the buckets of their distances. First sums along diagonals; then each thread adds
/// these to its own buckets. `diagonals` holds 2·64 numbers.
__device__ void add_to_buckets(const AttentionParams& p, const float (*square)[kTile + 1], int q0, int k0, float* out,
                               float* diagonals, int* buckets) {
  __syncthreads();  // `square` is complete, and the previous diagonals have been read
  const int t = threadIdx.x;
  if (t < 2 * kTile - 1) {
    const int n = t - (kTile - 1);  // column − row
    float sum = 0;
    for (int r = max(0, -n); r < kTile && r + n < kTile; ++r) sum += square[r][r + n];
    diagonals[t] = sum;
    buckets[t] = p.bucket_of(k0 - q0 - p.mask.offset + n);
  }
  __syncthreads();
  for (int bucket = t; bucket < p.t5_buckets; bucket += kThreads) {
    float sum = 0;
    for (int n = 0; n < 2 * kTile - 1; ++n) sum += buckets[n] == bucket ? diagonals[n] : 0.0F;
    out[bucket] += sum;
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void query_gradient_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ Staging staging;
  __shared__ float square[kTile][kTile + 1];
  __shared__ float diagonals[2 * kTile];
  __shared__ int buckets[2 * kTile];
  const int tiles = tiles_of(p.seq_q);
  const Task task(tiles, p.n_heads);
  const int tile = tiles - 1 - task.tile;
  const int q0 = tile * kTile;
  const int q1 = min(q0 + kTile, p.seq_q);
  const int slice = static_cast<int>(blockIdx.y) * kSlice;
  const int kv_head = task.head / p.group;
  const Rows<T> q = rows_of<T>(p.q, p.q_at, task.b, q0, task.head, p.seq_q);
  const Rows<T> dy = rows_of<T>(p.dy, p.y_at, task.b, q0, task.head, p.seq_q);
  float* dt5 = nullptr;
  if (p.dt5 != nullptr && slice == 0) {
    dt5 = p.dt5 + ((static_cast<int64_t>(task.b) * p.n_heads + task.head) * tiles + tile) * p.t5_buckets;
    for (int bucket = threadIdx.x; bucket < p.t5_buckets; bucket += kThreads) dt5[bucket] = 0;
  }
  float dq[kSide][kSide] = {};
  const int k_begin = max(p.mask.keys(q0).begin, 0) / kTile * kTile;
  const int k_end = min(p.mask.keys(q1 - 1).end, p.seq_k);
  for (int k0 = k_begin; k0 < k_end; k0 += kTile) {
    const Coverage coverage = p.mask.coverage(q0, q1, k0, min(k0 + kTile, p.seq_k));
    if (coverage == Coverage::none) continue;
    const Rows<T> k = rows_of<T>(p.k, p.k_at, task.b, k0, kv_head, p.seq_k);
    float s[kSide][kSide];
    float ds[kSide][kSide];
    float direct[kSide][kSide];
    multiply(q, k, p.d_qk, staging, s);
    multiply(dy, rows_of<T>(p.v, p.v_at, task.b, k0, kv_head, p.seq_k), p.d_v, staging, ds);
    find_gradients(p, task.b, task.head, q0, q1, k0, coverage == Coverage::partial, s, ds, direct);
    if (dt5 != nullptr) {
      __syncthreads();
      put(direct, square);
      add_to_buckets(p, square, q0, k0, dt5, diagonals, buckets);
    }
    __syncthreads();
    put(ds, square);
    add_product<false>(square, k, p.d_qk, slice, staging, dq);
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) dq[i][j] *= p.scale;
  }
  store_slice(static_cast<T*>(p.dq) + p.dq_at.at(task.b, q0, task.head), p.dq_at.seq, q1 - q0, p.d_qk, slice, dq);
}

}  // namespace

template <class T>
void backward_by_tiles(const AttentionParams& p, cudaStream_t stream) {
  const dim3 keys = grid_of(p.seq_k, p.n_kv_heads, p.batch, std::max(p.d_qk, p.d_v));
  if (keys.x > 0) key_gradient_kernel<DeviceType<T>><<<keys, kThreads, 0, stream>>>(p);
  const dim3 queries = grid_of(p.seq_q, p.n_heads, p.batch, p.d_qk);
  if (queries.x > 0) query_gradient_kernel<DeviceType<T>><<<queries, kThreads, 0, stream>>>(p);
  lamina::cuda::check_launch("attention");
}

template void backward_by_tiles<float>(const AttentionParams&, cudaStream_t);
template void backward_by_tiles<bf16>(const AttentionParams&, cudaStream_t);
template void backward_by_tiles<f16>(const AttentionParams&, cudaStream_t);

}  // namespace lamina::ops::cuda
