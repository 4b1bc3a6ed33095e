#pragma once

// A norm fused before a product (few_rows_cuda.cu): every block normalizes all its rows itself, which costs reads from
// the L2 cache but no extra launch.
//
// x and the residual are copied to shared memory while the first part of the weight is loading. Further parts of a
// residual (supported for one row only) are added from global memory. A warp owns 512 bytes of a row; each 16 bytes
// stay with one lane until they are normalized and rounded to x's dtype for the product. The first block writes x +
// residual. The squares (for a layer norm those around the mean, which takes another barrier) are summed in an order
// that does not depend on the number of rows.

#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/l2_policy_loads.cuh"

namespace lamina::ops::cuda::few_rows {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kWarps = 8;           // warps per block
constexpr int kChunk = kWarp * 16;  // bytes of a row that a warp normalizes at once: a chunk
constexpr int kMostChunks = kWarp;  // maximum number of chunks of all rows of a block

/// The rows of x that a block processes.
struct Part {
  const char* data;
  int bytes;   ///< bytes per row, if it had the weight's dtype
  int stride;  ///< bytes between consecutive rows
  int rows;
};

/// Parameters of the norm before the product. If there is no norm, they are not used.
struct FusedNorm {
  const char* residual;  ///< [parts, rows, in], or null
  char* h;               ///< [rows, in]: written if there is a residual
  const float* scale;    ///< [in], or null
  const float* bias;     ///< [in], or null
  float offset;          ///< added to the norm's scale
  float eps;
  bool is_layer_norm;  ///< layer norm, else RMS norm
  int parts;           ///< number of parts of the residual; several only for a single row
  int row_bits;        ///< 2^row_bits >= rows per block
  int stride;          ///< bytes from one row to the next in shared memory

  /// The row stride in shared memory for rows of `bytes` bytes: adjacent rows start in different banks.
  static int stride_of(int bytes) { return (bytes + 127) / 128 * 128 + 64; }
  /// Bytes of shared memory for the rows and their residuals.
  size_t shared() const { return (static_cast<size_t>(stride) << row_bits) * (residual == nullptr ? 1 : 2); }
};

/// The block's rows of x, normalized in shared memory. A warp handles one row or, if several warps share a row, some of
/// its chunks.
template <class X>
class BlockRowNorm {
 public:
  /// Starts the copy of x's rows from first_row on. `rows` is shared memory for them and, if there is a residual, as
  /// much again; `sums` has two numbers per chunk.
  __device__ BlockRowNorm(const FusedNorm& norm, const Part& part, int first_row, char* rows, float* sums)
      : norm_(norm), sums_(sums), bytes_(part.stride) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    lane_ = static_cast<int>(threadIdx.x) % kWarp;
    row_ = warp & ((1 << norm_.row_bits) - 1);
    first_ = warp >> norm_.row_bits;
    there_ = row_ < part.rows;
    x_ = part.data;
    from_ = static_cast<int64_t>(first_row) * bytes_;
    mine_ = rows + row_ * norm_.stride;
    to_residual_ = norm_.stride << norm_.row_bits;
  }

  __device__ void fetch_parameters() const {
    each([&](int at) {
      if (norm_.scale != nullptr) prefetch_l2(norm_.scale + column(at));
      if (norm_.bias != nullptr) prefetch_l2(norm_.bias + column(at));
    });
  }
  __device__ void start_copies() {
    each([&](int at) {
      cp_async_16(shared_address(mine_ + at), x_ + row_ * bytes_ + at, true);
      if (norm_.residual == nullptr) return;
      cp_async_16(shared_address(mine_ + to_residual_ + at), norm_.residual + from_ + row_ * bytes_ + at, true);
    });
    cp_async_commit();
    const int at = (first_ * kWarp + lane_) * 16;
    if (there_ && at < bytes_) load_parameters(at);
  }
  /// Computes the norm. All threads of the block must call it. The caller needs a barrier before the rows are read.
  __device__ void finish() {
    cp_async_wait();
    if (norm_.residual != nullptr) add_residual();
    const float count = static_cast<float>(bytes_ / static_cast<int>(sizeof(X)));
    const float mean = norm_.is_layer_norm ? total(sums_, [](float value) { return value; }) / count : 0.0F;
    const float squares = total(sums_ + kMostChunks, [mean](float value) { return (value - mean) * (value - mean); });
    const float r = 1.0F / sqrtf(squares / count + norm_.eps);
    bool loaded = true;
    each([&](int at) {
      if (!loaded) load_parameters(at);
      loaded = false;
      Pack<X>& pack = pack_at(at);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        float value = (to_float(pack.values[j]) - mean) * r;
        if (norm_.scale != nullptr) value *= scale_[j] + norm_.offset;
        if (norm_.bias != nullptr) value += bias_[j];
        pack.values[j] = from_float<X>(value);
      }
    });
  }

 private:
  static constexpr int kSize = Pack<X>::kSize;

  /// Calls fn(byte offset in the row) for each 16-byte pack of this lane.
  template <class F>
  __device__ void each(const F& fn) const {
    if (!there_) return;
    const int hop = (kWarps >> norm_.row_bits) * kChunk;
    for (int at = (first_ * kWarp + lane_) * 16; at < bytes_; at += hop) fn(at);
  }
  __device__ static int column(int at) { return at / static_cast<int>(sizeof(X)); }
  __device__ Pack<X>& pack_at(int at) const { return *reinterpret_cast<Pack<X>*>(mine_ + at); }

  __device__ void load_parameters(int at) {
#pragma unroll
    for (int j = 0; j < kSize; j += 4) {
      if (norm_.scale != nullptr) {
        *reinterpret_cast<float4*>(scale_ + j) = *reinterpret_cast<const float4*>(norm_.scale + column(at) + j);
      }
      if (norm_.bias != nullptr) {
        *reinterpret_cast<float4*>(bias_ + j) = *reinterpret_cast<const float4*>(norm_.bias + column(at) + j);
      }
    }
  }
  __device__ void add_residual() {
    const bool writes = blockIdx.x == 0;
    each([&](int at) {
      Pack<X>& pack = pack_at(at);
      const Pack<X>& other = pack_at(at + to_residual_);
      float sum[kSize];
#pragma unroll
      for (int j = 0; j < kSize; ++j) sum[j] = to_float(other.values[j]);
      if (norm_.parts > 1) add_parts(sum, at);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {  // rounded to x's dtype, because later layers see it in that type
        pack.values[j] = from_float<X>(to_float(pack.values[j]) + sum[j]);
      }
      if (writes) store_pack(reinterpret_cast<X*>(norm_.h + from_ + row_ * bytes_ + at), pack);
    });
  }
  /// Adds parts 1, 2, … of a residual to the sum, in order. Only for a single row.
  __device__ void add_parts(float (&sum)[kSize], int at) const {
    constexpr int kInFlight = 8;
    for (int first = 1; first < norm_.parts; first += kInFlight) {
      uint4 words[kInFlight];
#pragma unroll
      for (int n = 0; n < kInFlight; ++n) {
        words[n] = load_evict_first(norm_.residual + (first + n) * bytes_ + at, first + n < norm_.parts);
      }
#pragma unroll
      for (int n = 0; n < kInFlight; ++n) {
        const Pack<X> part = *reinterpret_cast<const Pack<X>*>(&words[n]);
#pragma unroll
        for (int j = 0; j < kSize; ++j) sum[j] += to_float(part.values[j]);
      }
    }
  }
  /// Sum of term(value) over the warp's row: first per chunk, then over the chunks.
  template <class F>
  __device__ float total(float* sums, const F& term) const {
    const int chunks = (bytes_ + kChunk - 1) / kChunk;
    for (int chunk = first_; chunk < chunks; chunk += kWarps >> norm_.row_bits) {
      const int at = (chunk * kWarp + lane_) * 16;
      float sum = 0.0F;
      if (there_ && at < bytes_) {
        const Pack<X>& pack = pack_at(at);
#pragma unroll
        for (int j = 0; j < kSize; ++j) sum += term(to_float(pack.values[j]));
      }
      sum = warp_sum(sum);
      if (lane_ == 0) sums[(chunk << norm_.row_bits) + row_] = sum;
    }
    __syncthreads();
    return warp_sum(lane_ < chunks ? sums[(lane_ << norm_.row_bits) + row_] : 0.0F);
  }

  const FusedNorm& norm_;
  float* sums_;
  const char* x_;  ///< first row of the block
  char* mine_;     ///< the warp's row in shared memory
  int64_t from_;   ///< byte offset of the block's first row
  int bytes_;      ///< bytes per row
  int lane_, row_, first_, to_residual_;
  bool there_;
  alignas(16) float scale_[kSize];
  alignas(16) float bias_[kSize];
};

}  // namespace lamina::ops::cuda::few_rows
