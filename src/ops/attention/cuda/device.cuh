#pragma once

// Shared by the CUDA attention kernels: arguments, masks, and the computation of a score from q·k.

#include "lamina/ops/attention/attention_dropout.h"
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::to_float;

/// Limit of positions. On the device they are 32-bit; the limit leaves room for the sum of two.
constexpr int64_t kMostDevicePositions = int64_t{1} << 30;

/// Less than every score but finite, so that the difference of two such values is not NaN.
constexpr float kMinusLarge = -1e30F;

/// t5_bucket() of attention_bias.h on the device. From max_distance on it needs no logarithm.
__device__ __noinline__ inline int t5_bucket_of(int distance, bool bidirectional, int buckets, int max_distance) {
  int first = 0;
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = abs(distance);
  } else {
    distance = max(-distance, 0);
  }
  const int exact = buckets / 2;
  if (distance < exact) return first + distance;
  if (distance >= max_distance) return first + buckets - 1;
  const double share = log(static_cast<double>(distance) / exact) / log(static_cast<double>(max_distance) / exact);
  const int step = static_cast<int>(share * (buckets - exact) + 1e-9);
  return first + min(exact + step, buckets - 1);
}

/// AttentionMask for use in kernels.
struct DeviceMask {
  using Kind = AttentionPattern::Kind;
  enum class Coverage { none, partial, full };
  struct Range {
    int begin;
    int end;
  };

  Kind kind;
  bool causal;
  bool is_contiguous_range;  // true if keys() describes the mask exactly
  int seq_q;
  int seq_k;
  int offset;  // position of query 0
  int window;
  int global_tokens;
  int block;
  int window_blocks;
  int global_blocks;
  int last_blocks;
  int random_blocks;
  int stride;
  uint64_t seed;
  const uint32_t* random_words;  // [query blocks, random_blocks], or null if the blocks are drawn in the kernel
  const Range* documents;        // [seq_k]: the document of each position, or null
  /// Block-level mask, [seq_q / kCell, cell_words] rounded up. A cell is kCell × kCell (query, key) pairs; each word
  /// has one bit for each of 32 adjacent cells. Bits in x: whether any pair of the cell is visible. Bits in y: whether
  /// the pattern has holes in the cell. Only for tensor-core kernels.
  const uint2* cells;
  int cell_words;

  static constexpr int kCell = 32;
  static constexpr int kCellWord = 32 * kCell;  // keys per word of `cells`

  /// The bits of the cells in the row of cells that contains query q0, for keys [k0, k1) of one word.
  __device__ uint2 cells_of(int q0, int k0, int k1) const {
    const uint2 words = cells[static_cast<int64_t>(q0 / kCell) * cell_words + k0 / kCellWord];
    const int first = k0 / kCell % 32;
    const uint32_t some = 0xffffffffU >> (32 - ((k1 - 1) / kCell - k0 / kCell + 1));
    return {words.x >> first & some, words.y >> first & some};
  }
  /// Looks for a tile with a key that queries [q0, q1) see, among tiles of `width` keys from k0 on. Returns the tile's
  /// first key, or a value >= k_end if there is none.
  __device__ int next_keys(int q0, int q1, int k0, int k_end, int width) const {
    while (k0 < k_end) {
      uint32_t seen = 0;
      for (int row = q0 / kCell; row * kCell < q1; ++row) {
        seen |= cells[static_cast<int64_t>(row) * cell_words + k0 / kCellWord].x;
      }
      seen >>= k0 / kCell % 32;
      if (seen != 0) return k0 + (__ffs(static_cast<int>(seen)) - 1) * kCell / width * width;
      k0 = (k0 / kCellWord + 1) * kCellWord;
    }
    return k0;
  }

  __device__ Range document(int position) const { return documents == nullptr ? Range{0, seq_k} : documents[position]; }

  /// A range that contains all keys that a query may see. Both ends are non-decreasing in the query.
  __device__ Range keys(int query) const {
    const int position = query + offset;
    Range range = document(position);
    if (causal) range.end = min(range.end, max(position + 1, 0));
    if (is_contiguous_range && kind == Kind::window) {
      range.begin = max(range.begin, position - window + 1);
      range.end = min(range.end, position + window);
    }
    return range;
  }

  /// A range that contains all queries that may see a key.
  __device__ Range queries(int key) const {
    Range range = documents == nullptr ? Range{0, seq_q} : documents[key];
    if (causal) range.begin = max(range.begin, key - offset);
    if (is_contiguous_range && kind == Kind::window) {
      range.begin = max(range.begin, key - window + 1 - offset);
      range.end = min(range.end, key + window - offset);
    }
    return range;
  }

  __device__ uint32_t random_word(int query_block, int draw) const {
    const int64_t index = static_cast<int64_t>(query_block) * random_blocks + draw;
    if (random_words != nullptr) return random_words[index];
    return philox_word({.seed = seed, .stream = 0}, static_cast<uint64_t>(index));
  }

  /// True if the blocks pattern lets a query block see a key block.
  __device__ bool blocks_meet(int query_block, int key_block, int key_blocks) const {
    if (abs(query_block - key_block) <= window_blocks) return true;
    if (key_block < global_blocks || query_block < global_blocks) return true;
    if (max(key_block, query_block) >= key_blocks - last_blocks) return true;
    for (int draw = 0; draw < random_blocks; ++draw) {
      if (random_word(query_block, draw) % static_cast<uint32_t>(key_blocks) == static_cast<uint32_t>(key_block)) {
        return true;
      }
    }
    return false;
  }

  /// True if the pattern lets a query see a key inside keys(query), i.e. if the key is not in a hole.
  __device__ __noinline__ bool pattern_allows(int query, int key) const {
    const Range text = document(query + offset);
    const int i = query + offset - text.begin;
    const int j = key - text.begin;
    const int distance = abs(i - j);
    switch (kind) {
      case Kind::full: return true;
      case Kind::window: return distance < window || j < global_tokens || i < global_tokens;
      case Kind::strided: return distance < window || distance % stride == 0;
      case Kind::blocks: break;
    }
    const int keys = causal ? i + 1 : text.end - text.begin;
    return blocks_meet(i / block, j / block, (keys + block - 1) / block);
  }

  __device__ bool allows(int query, Range keys_of_query, int key) const {
    return key >= keys_of_query.begin && key < keys_of_query.end && (is_contiguous_range || pattern_allows(query, key));
  }

  /// Visibility of the tile of queries [q0, q1) × keys [k0, k1), neither of them empty. `none` and `full` are exact.
  __device__ Coverage coverage(int q0, int q1, int k0, int k1) const {
    const Range first = keys(q0);
    const Range last = keys(q1 - 1);
    if (first.begin >= k1 || last.end <= k0) return Coverage::none;
    const bool within = last.begin <= k0 && first.end >= k1;
    if (is_contiguous_range) return within ? Coverage::full : Coverage::partial;
    const Coverage found = holes(q0, q1, k0, k1);
    return found == Coverage::full && !within ? Coverage::partial : found;
  }

  /// Coverage of the pattern's holes alone, within the ranges keys(). `full` if there are no holes.
  __device__ Coverage holes(int q0, int q1, int k0, int k1) const {
    if (is_contiguous_range) return Coverage::full;
    const Range text = document(q0 + offset);
    if (q1 + offset > text.end) return Coverage::partial;  // the tile spans several documents
    const int k_begin = max(k0, text.begin);
    const int k_end = min(k1, causal ? q1 + offset : text.end);
    if (k_begin >= k_end) return Coverage::none;
    return pattern_coverage(q0 + offset - text.begin, q1 + offset - text.begin, k_begin - text.begin,
                            k_end - text.begin, text.end - text.begin);
  }

 private:
  __device__ static Coverage coverage_of(bool some, bool all) {
    return all ? Coverage::full : some ? Coverage::partial : Coverage::none;
  }

  __device__ Coverage pattern_coverage(int q0, int q1, int k0, int k1, int text) const {
    const int low = q0 - (k1 - 1);
    const int high = q1 - 1 - k0;
    const int nearest = low > 0 ? low : high < 0 ? -high : 0;
    const int farthest = max(abs(low), abs(high));
    if (kind == Kind::window) {
      return coverage_of(nearest < window || k0 < global_tokens || q0 < global_tokens,
                         farthest < window || k1 <= global_tokens || q1 <= global_tokens);
    }
    if (kind == Kind::strided) {
      const int multiple = (nearest + stride - 1) / stride * stride;
      return coverage_of(nearest < window || multiple <= farthest, farthest < window || stride == 1);
    }
    if (block < 16) return Coverage::partial;  // small blocks: there are too many block pairs to test each
    bool some = false;
    bool all = true;
    for (int q = q0 / block; q * block < q1; ++q) {
      const int key_blocks = causal ? q + 1 : (text + block - 1) / block;
      for (int k = k0 / block; k * block < k1; ++k) {
        const bool meet = blocks_meet(q, k, key_blocks);
        some |= meet;
        all &= meet;
      }
    }
    return coverage_of(some, all);
  }
};

/// Strides of a tensor [batch, seq, heads, d], in elements.
struct HeadStrides {
  int64_t batch;
  int64_t seq;
  int64_t head;
  __device__ int64_t at(int64_t b, int64_t position, int64_t head_index) const {
    return b * batch + position * seq + head_index * head;
  }
};

struct DropoutOf {
  uint64_t key_stream;
  uint32_t threshold;  // 0: no dropout
  float factor;
  const unsigned long long* stream_offset;  // added to the stream number of the key
  PhiloxKeys round_keys;                    // Philox keys of the seed, for each round
  DropoutPlanes planes;                     // bit planes of the threshold

  __device__ bool active() const { return threshold != 0; }
  __device__ uint64_t stream() const { return key_stream + *stream_offset; }
  /// dropout_patch_mask() of the patch in this row and column.
  __device__ uint32_t kept(uint64_t stream, uint32_t row, uint32_t column) const {
    return dropout_patch_mask(round_keys, stream, row, column, planes);
  }
};

/// The additive bias of one head.
struct HeadBias {
  const float* table;  // biases by query − key, or null
  float slope;
  int offset;
  int flat_from;  // the table is constant from this distance on

  __device__ bool any() const { return table != nullptr || slope != 0; }
  __device__ float of(int query, int key) const {
    if (table != nullptr) return table[query - key];
    return -slope * static_cast<float>(abs(query + offset - key));
  }
};

/// Arguments of one attention call on CUDA. Untyped pointers have the element type of the kernel.
struct AttentionParams {
  int batch;
  int seq_q;
  int seq_k;
  int n_heads;
  int n_kv_heads;
  int group;
  int d_qk;
  int d_v;
  const void* q;
  const void* k;
  const void* v;
  HeadStrides q_at;
  HeadStrides k_at;
  HeadStrides v_at;
  HeadStrides y_at;  // strides of y and dy
  bool vectorized;   // true if rows of q, k, v, y can be read 16 bytes at a time
  float scale;
  float soft_cap;
  float unit;         // for tensor-core kernels, which keep scores as raw q·k if possible: weight = 2^(score · unit)
  float bias_factor;  // factor that converts the bias to such scores
  DeviceMask mask;
  DropoutOf dropout;
  const float* bias;    // [n_heads, bias_width()], index i − j + seq_k − 1 + kBiasMargin; or null
  const float* slopes;  // [n_heads], or null; also null if `bias` includes ALiBi
  int flat_from;        // the bias table is constant from this distance on
  const float* sinks;   // [n_heads], or null
  void* y;
  float* row_max;  // [batch, n_heads, seq_q]
  float* row_inv_sum;

  // The following are for backward.
  const void* dy;
  void* dq;
  void* dk;
  void* dv;
  HeadStrides dq_at;
  HeadStrides dk_at;
  HeadStrides dv_at;
  const float* delta;  // [batch, n_heads, seq_q]: Σ_d dy · y
  const float* base;   // [batch, n_heads, seq_q]: log2 Σ exp(score), so that a weight is 2^(score · log2(e) − base)
  float* dt5;          // [batch, n_heads, blocks of queries, buckets], or null
  int t5_buckets;
  int t5_flat_from;    // distance from which the last T5 bucket applies
  const int* buckets;  // [seq_q + seq_k − 1]: T5 bucket, index seq_q − 1 − distance; null without T5

  /// The T5 bucket of a distance, which is first clamped to the distances that occur.
  __device__ int bucket_of(int distance) const { return buckets[min(max(seq_q - 1 - distance, 0), seq_q + seq_k - 2)]; }
  /// Zero padding on both sides of the bias table, because tiles extend past the last query and key.
  static constexpr int kBiasMargin = 128;
  __host__ __device__ int64_t bias_width() const { return int64_t{seq_q} + seq_k - 1 + 2 * kBiasMargin; }
  __device__ HeadBias bias_of(int head) const {
    return {bias == nullptr ? nullptr : bias + head * bias_width() + kBiasMargin + seq_k - 1,
            slopes == nullptr ? 0.0F : slopes[head], mask.offset, flat_from};
  }
  /// The row of dropout patches that contains a query, counted over all heads.
  __device__ uint32_t dropout_row(int b, int head, int query) const {
    const uint32_t head_row = static_cast<uint32_t>(b) * n_heads + head;
    return head_row * static_cast<uint32_t>(dropout_patches(seq_q)) + dropout_patch(static_cast<uint32_t>(query));
  }
  __device__ int64_t statistics_row(int b, int head) const {
    return (static_cast<int64_t>(b) * n_heads + head) * seq_q;
  }
};

/// The score of a raw product q·k. If `slope` is given, it receives the derivative with respect to scale · q·k.
__device__ inline float biased_score(const AttentionParams& p, float dot, const HeadBias& bias, int query, int key,
                                     float* slope = nullptr) {
  float s = dot * p.scale;
  if (p.soft_cap > 0) {
    const float t = tanhf(s / p.soft_cap);
    s = p.soft_cap * t;
    if (slope != nullptr) *slope = 1.0F - t * t;
  } else if (slope != nullptr) {
    *slope = 1.0F;
  }
  return bias.any() ? s + bias.of(query, key) : s;
}

/// The arguments and temporary tables of a launch. It may be freed as soon as the kernels are enqueued.
struct AttentionWorkspace {
  AttentionParams params;
  Tensor bias;
  Tensor buckets;
  Tensor documents;
  Tensor random_words;
  Tensor cells;
};

/// Builds the kernel arguments, and enqueues the kernels that fill the tables.
AttentionWorkspace attention_workspace(const AttentionForward& args);
/// Builds only the mask.
DeviceMask device_mask(const AttentionOptions& options, int64_t seq_q, int64_t seq_k);

// Fallback kernels, which support every call (tiles/). T is the element type.
template <class T>
void forward_by_tiles(const AttentionParams& params, cudaStream_t stream);
template <class T>
void backward_by_tiles(const AttentionParams& params, cudaStream_t stream);

/// Queries per block of the fallback kernels.
constexpr int kTileQueries = 64;

/// A tensor size as int, clamped to the largest size that kernels support.
inline int narrow(int64_t value) { return static_cast<int>(std::min(value, kMostDevicePositions)); }

inline HeadStrides strides_of(const Tensor& tensor) {
  return {tensor.strides()[0], tensor.strides()[1], tensor.strides()[2]};
}

/// True if the rows of a tensor [batch, seq, heads, d] can be read 16 bytes at a time.
inline bool is_16_byte_aligned(const Tensor& tensor) {
  const auto size = static_cast<int64_t>(size_of(tensor.dtype()));
  bool fits = reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0 && tensor.dim(3) * size % 16 == 0;
  for (int axis = 0; axis < 3; ++axis) fits &= tensor.dim(axis) <= 1 || tensor.strides()[axis] * size % 16 == 0;
  return fits;
}

}  // namespace lamina::ops::cuda
