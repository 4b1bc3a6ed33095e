#pragma once

// Tensor cores by hand: 16×8×16 products of bf16 or f16 with f32 sums, tiles in shared memory, asynchronous copies.
//
// A tile is rows of kD elements (64 or 128) whose 16-byte chunks are exchanged by row: chunk c of row r lies at
// c ^ (r % 8), so that the eight rows of an 8×8 matrix touch all banks once. Of a product's sums a lane l holds, per
// 16×8 block, rows l / 4 and l / 4 + 8, columns 2·(l % 4) and the next: {row, row, row + 8, row + 8}. Sums of two
// blocks side by side, rounded, are the left operand of the next product: nothing passes through shared memory between
// them.

#include "lamina/ops/attention/attention_device.cuh"

namespace lamina::ops::cuda {

constexpr float kLog2E = 1.4426950408889634F;
constexpr float kLn2 = 0.6931471805599453F;

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Copies 16 bytes to shared memory in the background; zeros where there is nothing to copy.
__device__ inline void copy_async(uint32_t to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;\n" ::); }
/// Until all but the last kOpen commits are complete.
template <int kOpen = 0>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kOpen) : "memory");
}

__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

template <class T>
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void multiply_add<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiply_add<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Which of a lane's rows (two per 16, in order) a row counted from its first is.
__device__ constexpr int half_of(int row) { return row / 16 * 2 + row / 8 % 2; }

/// Two numbers rounded side by side, the first in the lower half.
template <class T>
__device__ inline uint32_t pack_pair(float low, float high);
template <>
__device__ inline uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ inline uint32_t pack_pair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

/// 2^x to within two units of f32's last place, 0 for −inf.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
/// tanh with an error of some 1e-7, absolute: enough below a soft cap for types of 16 bits.
__device__ inline float quick_tanh(float x) { return 1.0F - __fdividef(2.0F, 1.0F + power_of_two(2.0F * kLog2E * x)); }

/// Copies up to eight elements one by one, and zeros behind them.
template <class T>
__device__ __noinline__ void copy_singly(uint32_t to, const T* from, int count) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto* parts = reinterpret_cast<const unsigned short*>(from) + 2 * i;
    const uint32_t low = 2 * i < count ? parts[0] : 0U;
    const uint32_t high = 2 * i + 1 < count ? parts[1] : 0U;
    words[i] = low | high << 16;
  }
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3])
               : "memory");
}

/// A tile in shared memory.
template <class T, int kD>
struct Tile {
  uint32_t base;

  /// Address of the chunk of 8 elements that begins at column 8·chunk.
  __device__ uint32_t at(int row, int chunk) const {
    return base + static_cast<uint32_t>((row * kD + ((chunk ^ (row & 7)) * 8)) * 2);
  }

  /// Fills kRows rows from memory, by kThreads threads; zeros beyond `count` rows and `width` columns. Complete after
  /// wait_for_copies() and a barrier.
  template <int kRows, int kThreads>
  __device__ void fill(const T* from, int64_t stride, int count, int width, bool packs) const {
    constexpr int kChunks = kD / 8;
    constexpr int kStep = kThreads / kChunks;  // rows that all threads fill at once
    static_assert(kStep % 8 == 0 && kRows % kStep == 0);
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int first = static_cast<int>(threadIdx.x) / kChunks;
    const int rows = chunk * 8 < width ? count - first : 0;
    const uint32_t to = at(first, chunk);
    const T* source = from + first * stride + chunk * 8;
#pragma unroll
    for (int row = 0; row < kRows; row += kStep) {
      const bool inside = row < rows;
      if (packs) {
        copy_async(to + row * kD * 2, inside ? source : from, inside);
      } else {
        copy_singly(to + row * kD * 2, source, inside ? min(width - chunk * 8, 8) : 0);
      }
      source += kStep * stride;
    }
  }

  /// Left operand: 16 rows from `row` on, columns 16·step and following.
  __device__ void left(uint32_t (&to)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices(to, at(row + lane % 16, step * 2 + lane / 16));
  }
  /// Right operand whose columns are 16 of the tile's rows: {b0, b1} of the first eight, then of the others.
  __device__ void right_rows(uint32_t (&to)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices(to, at(row + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
  }
  /// Right operand whose rows are 16 of the tile's rows and whose columns are the tile's columns 16·block and
  /// following.
  __device__ void right_columns(uint32_t (&to)[4], int row, int block) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices_transposed(to, at(row + lane % 16, block * 2 + lane / 16));
  }
};

/// Sums of a warp: kRowTiles times 16 rows, kBlocks times 8 columns.
template <int kRowTiles, int kBlocks>
using Sums = float[kRowTiles][kBlocks][4];

template <int kRowTiles, int kBlocks>
__device__ inline void clear(Sums<kRowTiles, kBlocks>& sums) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
    }
  }
}

/// sums = a bᵀ: rows `a_row` and following of tile a, rows `b_row` and following of tile b.
template <class T, int kD, int kRowTiles, int kBlocks>
__device__ inline void multiply_tiles(Sums<kRowTiles, kBlocks>& sums, const Tile<T, kD>& a, int a_row,
                                      const Tile<T, kD>& b, int b_row) {
  clear<kRowTiles, kBlocks>(sums);
#pragma unroll
  for (int step = 0; step < kD / 16; ++step) {
    uint32_t left[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) a.left(left[m], a_row + m * 16, step);
#pragma unroll
    for (int n = 0; n < kBlocks / 2; ++n) {
      uint32_t right[4];
      b.right_rows(right, b_row + n * 16, step);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add<T>(sums[m][2 * n], left[m], right[0], right[1]);
        multiply_add<T>(sums[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// The left operands of a warp's rows, loaded once.
template <class T, int kD, int kRowTiles>
struct LeftOperand {
  uint32_t parts[kD / 16][kRowTiles][4];

  __device__ void load(const Tile<T, kD>& tile, int row) {
#pragma unroll
    for (int step = 0; step < kD / 16; ++step) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) tile.left(parts[step][m], row + m * 16, step);
    }
  }
};

/// As multiply_tiles, with the left operand in registers.
template <class T, int kD, int kRowTiles, int kBlocks>
__device__ inline void multiply_loaded(Sums<kRowTiles, kBlocks>& sums, const LeftOperand<T, kD, kRowTiles>& left,
                                       const Tile<T, kD>& b, int b_row) {
  clear<kRowTiles, kBlocks>(sums);
#pragma unroll
  for (int step = 0; step < kD / 16; ++step) {
#pragma unroll
    for (int n = 0; n < kBlocks / 2; ++n) {
      uint32_t right[4];
      b.right_rows(right, b_row + n * 16, step);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add<T>(sums[m][2 * n], left.parts[step][m], right[0], right[1]);
        multiply_add<T>(sums[m][2 * n + 1], left.parts[step][m], right[2], right[3]);
      }
    }
  }
}

/// Calls fn(sum, row, column) for each number of a warp's sums, row and column counted from the lane's first; `sum` is
/// a reference. Conditions that are the same for all belong around it: a branch per number would cost more than the
/// work.
template <int kRowTiles, int kBlocks, class F>
__device__ inline void for_sums(Sums<kRowTiles, kBlocks>& sums, const F& fn) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fn(sums[m][n][i], m * 16 + i / 2 * 8, n * 8 + i % 2);
    }
  }
}

/// The sums of a warp get what the table or the slope says, times `factor`; `query` and `key` are those of the lane's
/// first number, rows are keys where kByKeys.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ inline void add_bias(const AttentionParams& p, const HeadBias& bias, float factor, int query, int key,
                                Sums<kRowTiles, kBlocks>& sums) {
  const int distance = query + bias.offset - key;
  if (bias.table == nullptr) {
    if (bias.slope == 0) return;
    const float slope = -bias.slope * factor;
    const auto first = static_cast<float>(distance);
    for_sums<kRowTiles, kBlocks>(sums, [&](float& x, int row, int column) {
      x = fmaf(slope, fabsf(first + static_cast<float>(kByKeys ? column - row : row - column)), x);
    });
    return;
  }
  const auto at = [&](int i, int j) { return bias.table[min(i, p.seq_q - 1) - min(j, p.seq_k - 1)]; };
  constexpr int kSpan = 16 * kRowTiles > 8 * kBlocks ? 16 * kRowTiles : 8 * kBlocks;
  const bool flat = distance - kSpan >= bias.flat_from || distance + kSpan <= -bias.flat_from;
  if (__all_sync(lamina::cuda::kAllLanes, flat)) {
    const float value = at(query, key) * factor;
    for_sums<kRowTiles, kBlocks>(sums, [&](float& x, int, int) { x += value; });
    return;
  }
  for_sums<kRowTiles, kBlocks>(sums, [&](float& x, int row, int column) {
    x = fmaf(at(query + (kByKeys ? column : row), key + (kByKeys ? row : column)), factor, x);
  });
}

/// sums += x b, x the rounded sums of a product before: its columns are rows `b_row` and following of tile b.
template <class T, int kD, int kRowTiles, int kBlocks>
__device__ inline void add_product_of(Sums<kRowTiles, kD / 8>& sums, const Sums<kRowTiles, kBlocks>& x,
                                      const Tile<T, kD>& b, int b_row) {
#pragma unroll
  for (int step = 0; step < kBlocks / 2; ++step) {
    uint32_t left[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      left[m][0] = pack_pair<T>(x[m][2 * step][0], x[m][2 * step][1]);
      left[m][1] = pack_pair<T>(x[m][2 * step][2], x[m][2 * step][3]);
      left[m][2] = pack_pair<T>(x[m][2 * step + 1][0], x[m][2 * step + 1][1]);
      left[m][3] = pack_pair<T>(x[m][2 * step + 1][2], x[m][2 * step + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kD / 16; ++n) {
      uint32_t right[4];
      b.right_columns(right, b_row + step * 16, n);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add<T>(sums[m][2 * n], left[m], right[0], right[1]);
        multiply_add<T>(sums[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// Writes a warp's sums, times a factor per row, to rows `stride` apart by way of its own rows of a tile, so that
/// memory is written in whole chunks. Every lane of the warp takes part.
template <class T, int kD, int kRowTiles>
__device__ inline void store_sums(const Sums<kRowTiles, kD / 8>& sums, const Tile<T, kD>& tile, int tile_row, T* to,
                                  int64_t stride, int count, int width, bool packs) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t pair = pack_pair<T>(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
        const int row = tile_row + m * 16 + half * 8 + lane / 4;
        asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(tile.at(row, n) + lane % 4 * 4), "r"(pair) : "memory");
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kD / 8;
  for (int n = lane; n < kRowTiles * 16 * kChunks; n += 32) {
    const int row = n / kChunks;
    const int chunk = n % kChunks;
    if (row >= count || chunk * 8 >= width) continue;
    uint4 words;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(tile.at(tile_row + row, chunk))
                 : "memory");
    T* out = to + row * stride + chunk * 8;
    if (packs) {
      *reinterpret_cast<uint4*>(out) = words;
    } else {
      const auto* parts = reinterpret_cast<const T*>(&words);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (chunk * 8 + c < width) out[c] = parts[c];
      }
    }
  }
}

/// What a warp sees of a tile: nothing, some or all by range, and whether the pattern has holes in it.
struct WarpView {
  DeviceMask::Coverage range;
  bool holes;
};

/// What a warp knows of its queries [q0, q1): the ranges of the first and the last.
struct WarpReach {
  DeviceMask::Range first;
  DeviceMask::Range last;
  int q0;
  int q1;

  __device__ WarpReach(const DeviceMask& mask, int begin, int end)
      : first(begin < end ? mask.keys(begin) : DeviceMask::Range{0, 0}),
        last(begin < end ? mask.keys(end - 1) : DeviceMask::Range{0, 0}),
        q0(begin),
        q1(end) {}
  /// For keys [k0, k1), which may lie partly behind the last key. Not kSpecial: ranges say everything.
  template <bool kSpecial>
  __device__ WarpView of(const DeviceMask& mask, int k0, int k1) const {
    using Coverage = DeviceMask::Coverage;
    if (q0 >= q1 || first.begin >= k1 || last.end <= k0) return {Coverage::none, false};
    const Coverage range = last.begin <= k0 && first.end >= k1 ? Coverage::full : Coverage::partial;
    if constexpr (!kSpecial) return {range, false};
    const Coverage found = mask.holes(q0, q1, k0, min(k1, mask.seq_k));
    return {found == Coverage::none ? found : range, found == Coverage::partial};
  }
};

/// Words of dropout's stream for four weights at once, where those of four keys side by side come from one draw: every
/// lane draws one row's, and neighbours exchange halves. {row, row, row + 8, row + 8}, as sums lie; `element` is that
/// of the first of the eight keys for the lane's first row, `below` how much further the row eight below is.
__device__ inline void dropout_words(const RandomKey& key, uint64_t element, uint64_t below, uint32_t (&out)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool odd = lane % 2 != 0;
  const auto words = philox(key, (element + (odd ? below : 0) + lane % 4 / 2 * 4) / 4);
  const uint32_t got0 = __shfl_xor_sync(lamina::cuda::kAllLanes, odd ? words[0] : words[2], 1);
  const uint32_t got1 = __shfl_xor_sync(lamina::cuda::kAllLanes, odd ? words[1] : words[3], 1);
  out[0] = odd ? got0 : words[0];
  out[1] = odd ? got1 : words[1];
  out[2] = odd ? words[2] : got0;
  out[3] = odd ? words[3] : got1;
}

/// The same where rows are keys and columns queries: four lanes draw for two queries and two runs of four keys, and
/// transpose what they drew. `element` is that of the lane's first query and key; the next query's is `seq_k` further.
__device__ inline void dropout_words_of_keys(const RandomKey& key, uint64_t element, int seq_k, uint32_t (&out)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int turn = lane / 4 % 4;
  const uint64_t first = element - turn;  // of the run of four keys
  const auto words = philox(key, (first + (turn & 1) * static_cast<uint64_t>(seq_k) + turn / 2 * 8) / 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = words[i];
#pragma unroll
  for (int step = 1; step <= 2; ++step) {
    const bool upper = (turn & step) != 0;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low = step == 1 ? 2 * pair : pair;
      const int high = low + step;
      const uint32_t got = __shfl_xor_sync(lamina::cuda::kAllLanes, upper ? out[low] : out[high], 4 * step);
      out[low] = upper ? got : out[low];
      out[high] = upper ? out[high] : got;
    }
  }
}

/// A bit per number of a lane's kRowTiles · kBlocks · 4 <= 64: whether dropout keeps its weight. `query` and `key` are
/// those of the lane's first number; rows are keys where kByKeys. A loop rather than copies of the draw for every
/// number.
template <bool kByKeys, int kRowTiles, int kBlocks>
__device__ inline uint64_t kept_bits(const AttentionParams& p, int b, int head, int query, int key) {
  static_assert(kRowTiles * kBlocks * 4 <= 64);
  const RandomKey random{p.dropout.key.seed, p.dropout.key.stream + *p.dropout.stream_offset};
  const uint64_t first = p.dropout_row(b, head, query) + key;
  const auto seq_k = static_cast<uint64_t>(p.seq_k);
  const bool aligned = p.seq_k % 4 == 0;
  uint64_t bits = 0;
#pragma unroll 4
  for (int n = 0; n < kRowTiles * kBlocks; ++n) {
    const int m = n / kBlocks * 16;
    const int c = n % kBlocks * 8;
    const uint64_t element = first + (kByKeys ? c * seq_k + m : m * seq_k + c);
    uint32_t words[4];
    if (!aligned) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint64_t at = element + (kByKeys ? i % 2 * seq_k + i / 2 * 8 : i / 2 * 8 * seq_k + i % 2);
        words[i] = dropout_word(random.seed, random.stream, at);
      }
    } else if constexpr (kByKeys) {
      dropout_words_of_keys(random, element, p.seq_k, words);
    } else {
      dropout_words(random, element - static_cast<int>(threadIdx.x) % 4 * 2, 8 * seq_k, words);
    }
    uint32_t four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) four |= (words[i] < p.dropout.threshold ? 0U : 1U) << i;
    bits |= static_cast<uint64_t>(four) << (4 * n);
  }
  return bits;
}

/// Multiplies what is kept by dropout's factor, the others by 0.
template <int kRowTiles, int kBlocks>
__device__ inline void drop(const AttentionParams& p, uint64_t kept, Sums<kRowTiles, kBlocks>& sums) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool keep = (kept >> ((m * kBlocks + n) * 4 + i) & 1) != 0;
        sums[m][n][i] = keep ? sums[m][n][i] * p.dropout.factor : 0.0F;
      }
    }
  }
}

// Kernels on tensor cores, for heads up to kWidestMma wide; T is bf16, or f16 forward.

constexpr int kWidestMma = 128;
constexpr int kMostMmaBuckets = 128;

inline bool takes_mma(const AttentionParams& params) {
  // Weights are rounded between products: over a few keys those errors do not average out. There and in narrow heads is
  // nothing to gain either.
  const auto fits = [](int width) { return width >= 16 && width <= kWidestMma; };
  const bool few = static_cast<int64_t>(params.seq_q) * params.seq_k <= 32 * 32;
  return fits(params.d_qk) && fits(params.d_v) && params.t5_buckets <= kMostMmaBuckets && !few &&
         !(params.t5_buckets > 0 && params.soft_cap > 0);  // then dt5 and dq have different gradients of the scores
}
/// Whether more than scaling and ranges of keys happens to the scores.
inline bool is_special(const AttentionParams& params) {
  return params.soft_cap > 0 || params.bias != nullptr || params.slopes != nullptr || params.dropout.threshold != 0 ||
         params.scale <= 0 || !params.mask.ranges_suffice;
}
/// Queries of one block of the kernel that makes dq.
inline int mma_query_rows(const AttentionParams& params) { return params.d_qk <= 64 && params.d_v <= 64 ? 128 : 64; }

template <class T>
void forward_by_mma(const AttentionParams& params, cudaStream_t stream);
template <class T>
void key_gradients_by_mma(const AttentionParams& params, cudaStream_t stream);
template <class T>
void query_gradients_by_mma(const AttentionParams& params, cudaStream_t stream);

}  // namespace lamina::ops::cuda
