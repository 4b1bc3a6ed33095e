#pragma once

// What the CUDA kernels of attention share: the arguments by value, who sees whom, and what happens to a score between
// the product q·k and the softmax.

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/attention_dropout.h"
#include "lamina/ops/attention/tile_scratch.h"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::to_float;

/// Positions on the device: 32 bits, with room for sums of two of them.
constexpr int64_t kMostDevicePositions = int64_t{1} << 30;

/// Below every score, but finite, so that differences of two of them are numbers.
constexpr float kLowest = -1e30F;

/// The T5 bucket of a distance: t5_bucket() of attention_bias.h. From max_distance on it is the last one without a
/// logarithm.
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

/// AttentionMask on the device.
struct DeviceMask {
  using Kind = AttentionPattern::Kind;
  enum class Coverage { none, partial, full };
  struct Range {
    int begin;
    int end;
  };

  Kind kind;
  bool causal;
  bool ranges_suffice;  // keys() says everything
  int seq_q;
  int seq_k;
  int offset;  // position of query 0
  int window;
  int global_tokens;
  int block;
  int window_blocks;
  int global_blocks;
  int random_blocks;
  int stride;
  uint64_t seed;
  const uint32_t* random_words;  // [query blocks, random_blocks], or null: drawn on the spot
  const Range* documents;        // [seq_k]: the document of each position, or null for one
  /// [seq_q / kCell, cell_words], rounded up: of the kCell² pairs of 32 cells side by side a bit each in x, whether any
  /// may meet, and in y, whether holes of the pattern lie between. Only for kernels on tensor cores.
  const uint2* cells;
  int cell_words;

  static constexpr int kCell = 32;
  static constexpr int kCellWord = 32 * kCell;  // keys of a word

  /// The cells' bits for queries of one row of cells and keys of one word.
  __device__ uint2 cells_of(int q0, int k0, int k1) const {
    const uint2 words = cells[static_cast<int64_t>(q0 / kCell) * cell_words + k0 / kCellWord];
    const int first = k0 / kCell % 32;
    const uint32_t some = 0xffffffffU >> (32 - ((k1 - 1) / kCell - k0 / kCell + 1));
    return {words.x >> first & some, words.y >> first & some};
  }
  /// The first of the tiles of `width` keys from k0 on that queries [q0, q1) see any of; from k_end on, if there is
  /// none.
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

  /// The keys a query may see lie in this range; both ends never fall from one query to the next.
  __device__ Range keys(int query) const {
    const int position = query + offset;
    Range range = document(position);
    if (causal) range.end = min(range.end, max(position + 1, 0));
    if (ranges_suffice && kind == Kind::window) {
      range.begin = max(range.begin, position - window + 1);
      range.end = min(range.end, position + window);
    }
    return range;
  }

  /// The queries that may see a key lie in this range.
  __device__ Range queries(int key) const {
    Range range = documents == nullptr ? Range{0, seq_q} : documents[key];
    if (causal) range.begin = max(range.begin, key - offset);
    if (ranges_suffice && kind == Kind::window) {
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

  /// AttentionPattern::allows for a query block and a key block.
  __device__ bool blocks_meet(int query_block, int key_block, int key_blocks) const {
    if (abs(query_block - key_block) <= window_blocks) return true;
    if (key_block < global_blocks || query_block < global_blocks) return true;
    for (int draw = 0; draw < random_blocks; ++draw) {
      if (random_word(query_block, draw) % static_cast<uint32_t>(key_blocks) == static_cast<uint32_t>(key_block)) {
        return true;
      }
    }
    return false;
  }

  /// Whether a key inside keys(query) falls into none of the pattern's holes.
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
    return key >= keys_of_query.begin && key < keys_of_query.end && (ranges_suffice || pattern_allows(query, key));
  }

  /// What a tile of queries [q0, q1) and keys [k0, k1), neither empty, holds. `none` and `full` are certain.
  __device__ Coverage coverage(int q0, int q1, int k0, int k1) const {
    const Range first = keys(q0);
    const Range last = keys(q1 - 1);
    if (first.begin >= k1 || last.end <= k0) return Coverage::none;
    const bool within = last.begin <= k0 && first.end >= k1;
    if (ranges_suffice) return within ? Coverage::full : Coverage::partial;
    const Coverage found = holes(q0, q1, k0, k1);
    return found == Coverage::full && !within ? Coverage::partial : found;
  }

  /// The same for the pattern alone: `full` where ranges say everything.
  __device__ Coverage holes(int q0, int q1, int k0, int k1) const {
    if (ranges_suffice) return Coverage::full;
    const Range text = document(q0 + offset);
    if (q1 + offset > text.end) return Coverage::partial;  // several documents
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
    if (block < 16) return Coverage::partial;  // more pairs of blocks than are worth looking at
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

/// Where the heads of a tensor [batch, seq, heads, d] lie, in elements.
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
  uint32_t threshold;  // 0: nothing is dropped
  float factor;
  const unsigned long long* stream_offset;  // added to the key's stream
  PhiloxKeys round_keys;                    // of the key's seed
  DropoutPlanes planes;                     // of the threshold

  __device__ bool active() const { return threshold != 0; }
  __device__ uint64_t stream() const { return key_stream + *stream_offset; }
  /// kept_of_patch() of a row and a column of patches.
  __device__ uint32_t kept(uint64_t stream, uint32_t row, uint32_t column) const {
    return kept_of_patch(round_keys, stream, row, column, planes);
  }
};

/// What is added to the scores of a head.
struct HeadBias {
  const float* table;  // by query − key, or null
  float slope;
  int offset;
  int flat_from;  // distance from which on the table does not change any more

  __device__ bool any() const { return table != nullptr || slope != 0; }
  __device__ float of(int query, int key) const {
    if (table != nullptr) return table[query - key];
    return -slope * static_cast<float>(abs(query + offset - key));
  }
};

/// One call, for kernels. Pointers are those of the element type a kernel is made for.
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
  HeadStrides y_at;  // of y and dy
  bool packs;        // rows of q, k, v, y can be read 16 bytes at a time
  float scale;
  float soft_cap;
  float unit;         // in which kernels on tensor cores count scores, q·k where it can be: times it, a power of two
  float bias_factor;  // from the bias to that unit
  DeviceMask mask;
  DropoutOf dropout;
  const float* bias;    // [n_heads, bias_width()] by i − j + seq_k − 1 + kBiasMargin, or null
  const float* slopes;  // [n_heads], or null; null too where the table has them already
  int flat_from;        // distance from which on the bias of the table does not change any more
  const float* sinks;   // [n_heads], or null
  void* y;
  float* greatest;  // [batch, n_heads, seq_q]
  float* inverse;

  // Backward
  const void* dy;
  void* dq;
  void* dk;
  void* dv;
  HeadStrides dq_at;
  HeadStrides dk_at;
  HeadStrides dv_at;
  const float* delta;  // [batch, n_heads, seq_q]: Σ_d dy · y
  const float* base;  // [batch, n_heads, seq_q]: log2 of Σ exp(score), so that a weight is 2^(score · log2(e) − base)
  float* dt5;         // [batch, n_heads, blocks of queries, buckets], or null
  int t5_buckets;
  int t5_flat_from;    // distance from which on the bucket is the last one
  const int* buckets;  // [seq_q + seq_k − 1]: T5's bucket by seq_q − 1 − distance, or null without T5

  /// T5's bucket of a distance; of those that do not occur, any.
  __device__ int bucket_of(int distance) const { return buckets[min(max(seq_q - 1 - distance, 0), seq_q + seq_k - 2)]; }
  /// Zeros on both sides of the distances that occur: tiles reach beyond the last query and key.
  static constexpr int kBiasMargin = 128;
  __host__ __device__ int64_t bias_width() const { return int64_t{seq_q} + seq_k - 1 + 2 * kBiasMargin; }
  __device__ HeadBias bias_of(int head) const {
    return {bias == nullptr ? nullptr : bias + head * bias_width() + kBiasMargin + seq_k - 1,
            slopes == nullptr ? 0.0F : slopes[head], mask.offset, flat_from};
  }
  /// The row of dropout's patches that a query lies in, counted through all heads.
  __device__ uint32_t dropout_row(int b, int head, int query) const {
    const uint32_t head_row = static_cast<uint32_t>(b) * n_heads + head;
    return head_row * static_cast<uint32_t>(dropout_patches(seq_q)) + dropout_patch(static_cast<uint32_t>(query));
  }
  __device__ int64_t statistics_row(int b, int head) const {
    return (static_cast<int64_t>(b) * n_heads + head) * seq_q;
  }
};

/// A score from q·k. `slope` is its derivative by scale · q·k.
__device__ inline float score_of(const AttentionParams& p, float dot, const HeadBias& bias, int query, int key,
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

/// What a launch needs beside the caller's tensors; may go as soon as the kernels are queued.
struct AttentionWorkspace {
  AttentionParams params;
  Tensor bias;
  Tensor buckets;
  Tensor documents;
  Tensor random_words;
  Tensor cells;
};

/// The arguments for kernels, with the tables they need queued for making.
AttentionWorkspace attention_workspace(const AttentionForward& args);
/// The part of it that a mask is made of.
DeviceMask device_mask(const AttentionOptions& options, int64_t seq_q, int64_t seq_k);

// Kernels that are right for everything; T is the tensors' element type.
template <class T>
void forward_by_tiles(const AttentionParams& params, cudaStream_t stream);
template <class T>
void backward_by_tiles(const AttentionParams& params, cudaStream_t stream);

/// Queries of one block of those kernels.
constexpr int kTileQueries = 64;

/// A size of a tensor, as kernels count; none they take is greater.
inline int narrow(int64_t value) { return static_cast<int>(std::min(value, kMostDevicePositions)); }

inline HeadStrides strides_of(const Tensor& tensor) {
  return {tensor.strides()[0], tensor.strides()[1], tensor.strides()[2]};
}

/// Whether the rows of a tensor [batch, seq, heads, d] can be read 16 bytes at a time.
inline bool has_packs(const Tensor& tensor) {
  const auto size = static_cast<int64_t>(size_of(tensor.dtype()));
  bool fits = reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0 && tensor.dim(3) * size % 16 == 0;
  for (int axis = 0; axis < 3; ++axis) fits &= tensor.dim(axis) <= 1 || tensor.strides()[axis] * size % 16 == 0;
  return fits;
}

}  // namespace lamina::ops::cuda
