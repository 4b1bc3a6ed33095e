#pragma once

// Attention and output projection of one token in one launch, after the QKV projection. A block handles some rows of
// the output projection, restricted to the columns of one KV head's queries. It prefetches them to shared memory before
// it waits for the previous kernel (programmatic dependent launch). Every block that handles columns of a KV head
// computes the attention of that head itself, so blocks never synchronize.
//
// Tensor cores process up to eight queries of a KV head at once: each warp has 16 keys of a tile of 128; scores are
// keys · queries, and the output is values · weights. To keep f32 precision, queries and weights are split into three
// numbers of the cache's dtype, whose products are exact. The attention output is split in the same way and multiplied
// by the block's rows of the projection. That gives one partial output per KV head; the consumer sums them in order.
// For a quantized projection the attention output is quantized to 8 bits instead, as in quantized_linear(), and a block
// has whole groups of 16 rows.
//
// Keys and values of earlier tokens do not depend on the previous kernel. So they too are copied before the wait, up to
// the cache position as known by then. If the position is different after the wait, they are copied again.
//
// The kernel leaves enough shared memory and registers that the one-row linear kernels before and after it
// (linear/fused/row_stream_cuda.cu) can be resident on the same SM, so that launches overlap.

#include "lamina/ops/attention/decode/output_shared.cuh"
#include "lamina/tensor/cuda/l2_policy_loads.cuh"
#include "lamina/tensor/cuda/prefetch.cuh"
#include "lamina/tensor/cuda/tma.cuh"

namespace lamina::ops::cuda::output_step {

using lamina::cuda::kAllLanes;
using lamina::cuda::kWarp;
using lamina::cuda::split_pair;

template <class T, int kD, int kStages, OutputWeight kWeight>
class OutputStep {
 public:
  using Shared = OutputShared<T, kD, kStages, kWeight>;
  __device__ OutputStep(const AttentionOutputParams& p, Shared& shared)
      : p_(p),
        shared_(shared),
        key_head_(static_cast<int>(blockIdx.y)),
        first_out_(static_cast<int>(blockIdx.x) * p.out_each),
        k_(static_cast<T*>(p.k)),
        v_(static_cast<T*>(p.v)) {}

  /// Reads the cache position of the token first, because everything depends on it. Before the wait for the previous
  /// kernel it is only a guess.
  __device__ void read_position_early() {
    const int64_t place = p_.given_place();
    const int64_t position = p_.given_position();
    place_ = place >= 0 && place < p_.capacity ? static_cast<int>(place) : -1;
    position_ = position >= 0 && position < p_.table_rows ? static_cast<int>(position) : -1;
  }
  /// Prepares the rotated queries, key and value, and loads the first keys and values. Cached keys and values, and the
  /// angles, are loaded before the wait for the previous kernel, and again after it if the position has changed. A
  /// thread handles four columns of a head, or none.
  __device__ void take_token() {
    const int of = thread_ / (kD / 4);
    const int c = thread_ % (kD / 4) * 4;
    const bool has = of < p_.group + 2;
    const bool is_rotated = of <= p_.group && c < p_.rotary_dim;
    const int head =
        of < p_.group ? key_head_ * p_.group + of : p_.n_heads + (of - p_.group) * p_.n_kv_heads + key_head_;
    const float* from = p_.projected + (has ? head * kD + c : 0);
    const int half = p_.rotary_dim / 2;
    const int partner = !is_rotated || p_.interleaved ? 0 : c < half ? half : -half;
    float4 cosines;
    float4 sines;
    float4 own;
    float4 other;
#pragma unroll 1
    for (bool waited = false;;) {
      cosines = {1, 1, 1, 1};
      sines = {};
      if (is_rotated) take_angles(c, cosines, sines);
#pragma unroll 1
      for (int tile = 0; tile < kStages && tile * kTileKeys <= place_; ++tile) stage_tile(tile);
      if (waited) break;
      stage_weights();
      lamina::cuda::grid_dependency_wait();
      waited = true;
      own = __ldcg(reinterpret_cast<const float4*>(from));
      other = __ldcg(reinterpret_cast<const float4*>(from + partner));
      const int place = place_;
      const int position = position_;
      read_position_early();
      if (!__syncthreads_or(place != place_ || position != position_)) break;
      lamina::cuda::cp_async_wait();
      __syncthreads();
    }
    if (p_.interleaved) other = {own.y, own.x, own.w, own.z};
    const float x[4] = {fmaf(own.x, cosines.x, other.x * sines.x), fmaf(own.y, cosines.y, other.y * sines.y),
                        fmaf(own.z, cosines.z, other.z * sines.z), fmaf(own.w, cosines.w, other.w * sines.w)};
    if (of < p_.group) {
      put_queries(of, c, x);
    } else if (has) {
      const T values[4] = {from_float<T>(x[0]), from_float<T>(x[1]), from_float<T>(x[2]), from_float<T>(x[3])};
      *reinterpret_cast<uint2*>(&shared_.fresh[of - p_.group][c]) = *reinterpret_cast<const uint2*>(values);
    }
    if (thread_ == 0) report_faults();
    lamina::cuda::cp_async_wait();
    __syncthreads();
  }
  /// Computes the attention output of the query heads into shared memory.
  __device__ void attend() {
    const int keys = place_ + 1;
    const int tiles = (keys + kTileKeys - 1) / kTileKeys;
    if (keys > 0 && blockIdx.x == 0 && thread_ < 2 * kChunks) {
      T* to = (thread_ < kChunks ? k_ : v_) + p_.key_index(key_head_, place_) * kD;
      reinterpret_cast<uint4*>(to)[thread_ % kChunks] = fresh_chunk(thread_);
    }
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      T(&staged)[2][kTileKeys * kD] = shared_.tiles[tile % kStages];
      if (tile >= kStages) {
        lamina::cuda::cp_async_wait();
        __syncthreads();
      }
      if (tile == tiles - 1) {
        if (thread_ < 2 * kChunks) {
          const int at = Shared::at(place_ % kTileKeys, thread_ % kChunks);
          *reinterpret_cast<uint4*>(staged[thread_ / kChunks] + at) = fresh_chunk(thread_);
        }
        __syncthreads();
      }
      process_keys(staged, keys - tile * kTileKeys);
      if (tile + kStages < tiles) {
        __syncthreads();
        stage_tile(tile + kStages);
      }
    }
    leave_found();
    __syncthreads();
#pragma unroll 1
    for (int n = 2 * thread_; n < p_.group * kD; n += 2 * kStepThreads) join(n);
    __syncthreads();
  }
  /// Multiplies this block's rows of the output projection by the attention output. A warp handles whole row tiles or,
  /// if there are few, a part of their columns.
  __device__ void multiply_out() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    lamina::cuda::barrier_wait(shared_address(&shared_.barrier), 0);
#endif
    float* sums = shared_.scores[0];
    const int padded = p_.tiles * kTileRows;
#pragma unroll 1
    for (int item = warp_; item < p_.tiles << p_.split_bits; item += kStepWarps) {
      const int tile = item >> p_.split_bits;
      const int split = item & ((1 << p_.split_bits) - 1);
      const float2 found = multiply_tile(tile, split * p_.steps_each, (split + 1) * p_.steps_each);
      if (lane_ % 4 != 0) continue;
      float* to = sums + split * padded + tile * kTileRows;
      to[Shared::kQuantized ? lane_ / 4 * 2 : lane_ / 4] = found.x;
      to[Shared::kQuantized ? lane_ / 4 * 2 + 1 : lane_ / 4 + 8] = found.y;
    }
    __syncthreads();
#pragma unroll 1
    for (int n = thread_; n < rows(); n += kStepThreads) {
      float sum = p_.out_bias != nullptr && key_head_ == 0 ? __ldg(p_.out_bias + first_out_ + n) : 0.0F;
#pragma unroll 1
      for (int split = 0; split < 1 << p_.split_bits; ++split) sum += sums[split * padded + n];
      p_.parts[key_head_ * p_.width + first_out_ + n] = sum;
    }
  }

 private:
  static constexpr int kChunks = kD / 8;

  __device__ void report_faults() const {
    if (place_ < 0) lamina::cuda::report(p_.faults, lamina::cuda::Fault::cache_place, p_.given_place());
    if (p_.rotary_dim > 0 && position_ < 0) {
      lamina::cuda::report(p_.faults, lamina::cuda::Fault::position, p_.given_position());
    }
  }
  /// Number of rows of the output projection in this block.
  __device__ int rows() const { return max(min(p_.out_each, p_.width - first_out_), 0); }
  __device__ void put_queries(int head, int c, const float (&x)[4]) const {
    uint32_t first[kSplitParts];
    uint32_t second[kSplitParts];
    split_pair<T>(x[0] * p_.scale, x[1] * p_.scale, first);
    split_pair<T>(x[2] * p_.scale, x[3] * p_.scale, second);
#pragma unroll
    for (int n = 0; n < kSplitParts; ++n) {
      *reinterpret_cast<uint2*>(&shared_.queries[n][head][c]) = uint2{first[n], second[n]};
    }
  }
  __device__ uint4 fresh_chunk(int n) const { return reinterpret_cast<const uint4*>(shared_.fresh)[n]; }

  /// Starts loading the block's rows of the output projection with bulk copies (cp.async.bulk), issued by one warp.
  __device__ void stage_weights() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (thread_ >= kWarp) return;
    const uint32_t barrier = shared_address(&shared_.barrier);
    if (lane_ == 0) {
      lamina::cuda::barrier_init(barrier, 1);
      lamina::cuda::fence_barrier_init();
    }
    __syncwarp();
    if constexpr (Shared::kQuantized) {
      const int groups = (rows() + kTileRows - 1) / kTileRows;
      if (lane_ == 0) lamina::cuda::barrier_expect(barrier, groups * Shared::tile_bytes(p_));
      __syncwarp();
#pragma unroll 1
      for (int n = lane_; n < groups; n += kWarp) {
        QuantizedTileOf<kWeight>::copy(p_.quantized, first_out_ / kTileRows + n, key_head_,
                                       shared_.weights() + n * Shared::tile_bytes(p_), barrier);
      }
      return;
    }
    const int bytes = p_.group * kD * 2;
    if (lane_ == 0) lamina::cuda::barrier_expect(barrier, rows() * bytes);
    __syncwarp();
    const int64_t row_bytes = static_cast<int64_t>(p_.n_heads) * kD * 2;
    const char* from = reinterpret_cast<const char*>(p_.out) + first_out_ * row_bytes + key_head_ * bytes;
    const uint64_t policy = lamina::cuda::evict_first_policy();
#pragma unroll 1
    for (int n = lane_; n < rows(); n += kWarp) {
      lamina::cuda::bulk_copy(shared_.weights() + n * Shared::weight_pitch(p_), from + n * row_bytes, bytes, barrier,
                              policy);
    }
#endif
  }
  /// Starts loading a tile of keys and values. Skips the slot of the new token and fills the slots after it with zeros.
  __device__ void stage_tile(int tile) const {
    static_assert(kStepThreads % kChunks == 0);
    constexpr int kRowsPerStep = kStepThreads / kChunks;  // rows per iteration
    const int chunk = thread_ % kChunks;
    const int first = thread_ / kChunks;
    const uint32_t to = shared_address(shared_.tiles[tile % kStages]);
#pragma unroll 1
    for (int row = first; row < kTileKeys; row += kRowsPerStep) {
      const int key = tile * kTileKeys + row;
      if (key == place_) continue;
      const bool there = key < place_;
      const int64_t at = there ? p_.key_index(key_head_, key) * kD + chunk * 8 : 0;
      const uint32_t slot = to + Shared::at(row, chunk) * 2;
      lamina::cuda::cp_async_16(slot, k_ + at, there);
      lamina::cuda::cp_async_16(slot + kTileKeys * kD * 2, v_ + at, there);
    }
    lamina::cuda::cp_async_commit();
  }
  /// Loads the cosines and signed sines of four columns.
  __device__ void take_angles(int c, float4& cosines, float4& sines) const {
    const int half = p_.rotary_dim / 2;
    const bool second = c >= half;
    const int64_t row = static_cast<int64_t>(max(position_, 0)) * p_.table_row;
    const bool per_pair = p_.table_row < p_.rotary_dim;
    if (p_.interleaved && per_pair) {
      const float2 cos = __ldg(reinterpret_cast<const float2*>(p_.cos + row + c / 2));
      const float2 sin = __ldg(reinterpret_cast<const float2*>(p_.sin + row + c / 2));
      cosines = {cos.x, cos.x, cos.y, cos.y};
      sines = {-sin.x, sin.x, -sin.y, sin.y};
      return;
    }
    const int64_t at = row + (per_pair && second ? c - half : c);
    cosines = __ldg(reinterpret_cast<const float4*>(p_.cos + at));
    sines = __ldg(reinterpret_cast<const float4*>(p_.sin + at));
    const float even = p_.interleaved || !second ? -1.0F : 1.0F;
    const float odd = p_.interleaved || second ? 1.0F : -1.0F;
    sines = {sines.x * even, sines.y * odd, sines.z * even, sines.w * odd};
  }
  /// Processes this warp's keys of a tile, `count` of which are visible.
  __device__ void process_keys(const T (&staged)[2][kTileKeys * kD], int count) {
    const int first = warp_ * kWarpKeys;
    if (first >= count) return;
    float sums[kSplitParts][4] = {};
#pragma unroll
    for (int s = 0; s < kD / 16; ++s) {
      uint32_t a[4];
      const int row = first + lane_ % 16;
      lamina::cuda::ldmatrix_x4(a, shared_address(staged[0] + Shared::at(row, 2 * s + lane_ / 16)));
#pragma unroll
      for (int n = 0; n < kSplitParts; ++n) {
        const auto* q = reinterpret_cast<const uint32_t*>(&shared_.queries[n][lane_ / 4][16 * s + lane_ % 4 * 2]);
        lamina::cuda::mma_m16n8k16<T>(sums[n], a, q[0], q[4]);
      }
    }
    // Transpose the scores from keys × queries to queries × keys.
    float* scores = shared_.scores[warp_];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[(lane_ % 4 * 2 + i % 2) * kScorePitch + lane_ / 4 + i / 2 * 8] = sums[2][i] + sums[1][i] + sums[0][i];
    }
    __syncwarp();
    float s[4];
    float most = most_;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = lane_ % 4 * 2 + i / 2 * 8 + i % 2;
      s[i] = first + key < count ? scores[lane_ / 4 * kScorePitch + key] : -INFINITY;
      most = fmaxf(most, s[i]);
    }
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    const float shrink = fast_exp2(most_ - most);
    most_ = most;
    sum_ *= shrink;
    const float shrinks[2] = {__shfl_sync(kAllLanes, shrink, lane_ % 4 * 8),
                              __shfl_sync(kAllLanes, shrink, lane_ % 4 * 8 + 4)};
    uint32_t weights[2][kSplitParts];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[i] = fast_exp2(s[i] - most);
      sum_ += s[i];
    }
    split_pair<T>(s[0], s[1], weights[0]);
    split_pair<T>(s[2], s[3], weights[1]);
#pragma unroll
    for (int m = 0; m < kD / 16; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) found_[m][i] *= shrinks[i % 2];
      uint32_t a[4];
      const int row = first + lane_ / 16 * 8 + lane_ % 8;
      lamina::cuda::ldmatrix_x4_trans(a, shared_address(staged[1] + Shared::at(row, 2 * m + lane_ / 8 % 2)));
#pragma unroll
      for (int n = kSplitParts - 1; n >= 0; --n)
        lamina::cuda::mma_m16n8k16<T>(found_[m], a, weights[0][n], weights[1][n]);
    }
  }
  __device__ void leave_found() {
    float sum = sum_ + __shfl_xor_sync(kAllLanes, sum_, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (lane_ % 4 == 0) shared_.stats[warp_][lane_ / 4] = {most_, sum};
#pragma unroll
    for (int m = 0; m < kD / 16; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        shared_.values[warp_][lane_ % 4 * 2 + i % 2][16 * m + lane_ / 4 + i / 2 * 8] = found_[m][i];
      }
    }
  }
  /// Merges the results of the warps for two adjacent columns.
  __device__ void join(int n) const {
    const int head = n / kD;
    float2 stats[kStepWarps];
    float most = kMinusLarge;
#pragma unroll
    for (int w = 0; w < kStepWarps; ++w) {
      stats[w] = shared_.stats[w][head];
      most = fmaxf(most, stats[w].x);
    }
    float2 value{};
    float total = 0;
#pragma unroll
    for (int w = 0; w < kStepWarps; ++w) {
      const float weight = fast_exp2(stats[w].x - most);
      const float2 found = *reinterpret_cast<const float2*>(&shared_.values[w][head][n % kD]);
      total = fmaf(weight, stats[w].y, total);
      value = {fmaf(weight, found.x, value.x), fmaf(weight, found.y, value.y)};
    }
    const float inverse = total != 0 ? 1.0F / total : 0.0F;
    if constexpr (Shared::kQuantized) {
      QuantizedTileOf<kWeight>::quantize({value.x * inverse, value.y * inverse}, n, shared_.numbers(),
                                         shared_.factors());
      return;
    }
    uint32_t pieces[kSplitParts];
    split_pair<__nv_bfloat16>(value.x * inverse, value.y * inverse, pieces);
#pragma unroll
    for (int i = 0; i < kSplitParts; ++i) *reinterpret_cast<uint32_t*>(&shared_.result[i][n]) = pieces[i];
  }
  /// Products of rows lane / 4 and lane / 4 + 8 of a tile of the output projection with the attention output, 16
  /// columns per step. The columns of the right operand are the three numbers into which the output is split.
  __device__ float2 multiply_tile(int tile, int step, int end) const {
    if constexpr (Shared::kQuantized) {
      const unsigned char* from = reinterpret_cast<const unsigned char*>(&shared_ + 1) + tile * Shared::tile_bytes(p_);
      return QuantizedTileOf<kWeight>::multiply(from, p_.quantized.head_blocks, step, end, shared_.numbers(),
                                                shared_.factors());
    }
    const uint32_t from =
        shared_.weights() + (tile * kTileRows + lane_ % 16) * Shared::weight_pitch(p_) + lane_ / 16 * 16;
    const int piece = lane_ / 4;
    const auto* pieces = reinterpret_cast<const uint32_t*>(&shared_.result[min(piece, kSplitParts - 1)][lane_ % 4 * 2]);
    float sums[2][4] = {};
#pragma unroll 1
    for (; step < end; step += kStepsAtOnce) {
      uint32_t a[kStepsAtOnce][4];
      uint32_t x[kStepsAtOnce][2];
#pragma unroll
      for (int n = 0; n < kStepsAtOnce; ++n) {
        lamina::cuda::ldmatrix_x4(a[n], from + (step + n) * 32);
        x[n][0] = piece < kSplitParts ? pieces[(step + n) * 8] : 0;
        x[n][1] = piece < kSplitParts ? pieces[(step + n) * 8 + 4] : 0;
      }
#pragma unroll
      for (int n = 0; n < kStepsAtOnce; ++n) {
        lamina::cuda::mma_m16n8k16<__nv_bfloat16>(sums[n % 2], a[n], x[n][0], x[n][1]);
      }
    }
    float upper = sums[0][0] + sums[0][1] + (sums[1][0] + sums[1][1]);
    float lower = sums[0][2] + sums[0][3] + (sums[1][2] + sums[1][3]);
    upper += __shfl_xor_sync(kAllLanes, upper, 1);
    lower += __shfl_xor_sync(kAllLanes, lower, 1);
    return {upper, lower};
  }

  const AttentionOutputParams& p_;
  Shared& shared_;
  const int thread_ = static_cast<int>(threadIdx.x);
  const int lane_ = thread_ % kWarp;
  const int warp_ = thread_ / kWarp;
  const int key_head_;
  const int first_out_;
  T* k_;
  T* v_;
  int place_ = -1;     // −1 if invalid
  int position_ = -1;  // −1 if invalid
  float most_ = kMinusLarge;
  float sum_ = 0;  // sum over this lane's keys
  float found_[kD / 16][4] = {};
};

}  // namespace lamina::ops::cuda::output_step
