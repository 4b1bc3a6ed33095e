#pragma once

// One warp's part of flash decoding over pages: tiles of 16 keys and values in a ring of shared memory, and products on
// tensor cores.
//
// Scores are keys · queriesᵀ (16 keys × 8 queries), and the output is valuesᵀ · weights. So a KV head's queries are the
// narrow side of both products, and each loaded key serves all of them. movmatrix turns the scores into the right
// operand of the second product. A lane has the same two queries in both results, so rescaling needs no shuffles.
//
// If the queries have another type than the cache, they and the weights are split into three numbers of the products'
// type, which keeps f32 precision. 8-bit keys are converted to bf16 after ldmatrix. ldmatrix reads bytes as 16-bit
// pairs, which determines the order of the keys' columns and of the output's columns.

#include "lamina/ops/attention/paged/paged_decode_device.cuh"

namespace lamina::ops::cuda::paged {

/// Transposes an 8 × 8 matrix of 16-bit numbers that a warp holds.
__device__ inline uint32_t transpose_square(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(y) : "r"(x));
  return y;
}

/// A tile of kTileKeys keys (or values) of type C, padded to kD columns. Its 16-byte chunks are XOR-swizzled by row, so
/// that ldmatrix has no bank conflicts.
template <class C, int kD>
struct PageTile {
  static constexpr int kChunks = kD * static_cast<int>(sizeof(C)) / 16;  // 16-byte chunks per row
  static constexpr int kBytes = kTileKeys * kChunks * 16;
  static constexpr int kColumns = 16 / static_cast<int>(sizeof(C));  // columns per chunk

  __device__ static int at(int row, int chunk) {
    const int swizzle = kChunks >= 8 ? row & 7 : (row >> 1) & (kChunks - 1);
    return (row * kChunks + (chunk ^ swizzle)) * 16;
  }
  /// Starts copying `count` rows of `width` columns. The rest becomes zero and is not read.
  __device__ static void load(uint32_t to, const C* from, int count, int width, int lane) {
#pragma unroll 4  // more would need too many registers for addresses
    for (int n = 0; n < kTileKeys * kChunks; n += kWarp) {
      const int row = (n + lane) / kChunks;
      const int chunk = (n + lane) % kChunks;
      const bool inside = row < count && chunk * kColumns < width;
      cp_async_16(to + at(row, chunk), from + row * width + chunk * kColumns, inside);
    }
  }
};

/// Converts the bytes `first` and `second` of a word to a pair of bf16: q + 128 becomes q.
template <int kFirst, int kSecond>
__device__ inline uint32_t decoded_pair(uint32_t word) {
  constexpr uint32_t kBase = 0x4B000000U;  // 2^23: a byte in its low mantissa bits is added to it exactly
  const float a = __uint_as_float(__byte_perm(word, kBase, 0x7650 + kFirst)) - 8388736.0F;
  const float b = __uint_as_float(__byte_perm(word, kBase, 0x7650 + kSecond)) - 8388736.0F;
  return pack_pair<__nv_bfloat16>(a, b);
}

/// The state of a warp: softmax statistics and output of kTiles · 8 queries. M is the type of the products.
template <class C, class M, int kD, int kParts, int kTiles>
struct WarpState {
  static constexpr bool kBytes = std::is_same_v<C, uint8_t>;
  static constexpr int kPitch = kD + 8;  // elements per row of queries; avoids bank conflicts
  static constexpr int kSteps = kD / 16;
  using Tile = PageTile<C, kD>;

  float most[kTiles][2];
  float sum[kTiles][2] = {};  // sums over this lane's keys
  float out[kTiles][kSteps][4] = {};

  __device__ WarpState() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) most[t][0] = most[t][1] = kMinusLarge;
  }

  /// scores[t] = keys · queriesᵀ (16 keys × 8 queries), not scaled.
  __device__ static void multiply_keys(uint32_t keys, const M* queries, int lane, float (&scores)[kTiles][4]) {
    float sums[kParts][kTiles][4] = {};
    const auto add = [&](int step, const uint32_t(&a)[4]) {
#pragma unroll
      for (int n = 0; n < kParts; ++n) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const M* q = queries + ((n * kTiles + t) * 8 + lane / 4) * kPitch + 16 * step;
          uint32_t b0;
          uint32_t b1;
          if constexpr (kBytes) {
            const auto pair = *reinterpret_cast<const uint2*>(q + lane % 4 * 4);
            b0 = pair.x;
            b1 = pair.y;
          } else {
            b0 = *reinterpret_cast<const uint32_t*>(q + lane % 4 * 2);
            b1 = *reinterpret_cast<const uint32_t*>(q + lane % 4 * 2 + 8);
          }
          mma_m16n8k16<M>(sums[n][t], a, b0, b1);
        }
      }
    };
    if constexpr (kBytes) {
#pragma unroll
      for (int s = 0; s < kSteps; s += 2) {
        uint32_t raw[4];  // rows g and g + 8 of step s, then of step s + 1
        ldmatrix_x4(raw, keys + Tile::at(lane % 16, s + lane / 16));
        add(s, {decoded_pair<0, 1>(raw[0]), decoded_pair<0, 1>(raw[1]), decoded_pair<2, 3>(raw[0]),
                decoded_pair<2, 3>(raw[1])});
        add(s + 1, {decoded_pair<0, 1>(raw[2]), decoded_pair<0, 1>(raw[3]), decoded_pair<2, 3>(raw[2]),
                    decoded_pair<2, 3>(raw[3])});
      }
    } else {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        uint32_t a[4];
        ldmatrix_x4(a, keys + Tile::at(lane % 16, 2 * s + lane / 16));
        add(s, a);
      }
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float all = sums[kParts - 1][t][i];
#pragma unroll
        for (int n = kParts - 2; n >= 0; --n) all += sums[n][t][i];
        scores[t][i] = all;
      }
    }
  }

  /// Turns scores (in log2 units) into weights and updates the statistics. If a maximum grew, rescales the output.
  __device__ void take_scores(float (&scores)[kTiles][4]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      float shrink[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float largest = fmaxf(fmaxf(scores[t][j], scores[t][j + 2]), most[t][j]);
#pragma unroll
        for (int step = 4; step < kWarp; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
        shrink[j] = fast_exp2(most[t][j] - largest);
        most[t][j] = largest;
        scores[t][j] = fast_exp2(scores[t][j] - largest);
        scores[t][j + 2] = fast_exp2(scores[t][j + 2] - largest);
        sum[t][j] = fmaf(sum[t][j], shrink[j], scores[t][j] + scores[t][j + 2]);
      }
      if (!__any_sync(kAllLanes, shrink[0] != 1.0F || shrink[1] != 1.0F)) continue;
#pragma unroll
      for (int m = 0; m < kSteps; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[t][m][i] *= shrink[i % 2];
      }
    }
  }

  /// out += valuesᵀ · weights.
  __device__ void add_values(uint32_t values, const float (&weights)[kTiles][4], int lane) {
    uint32_t b[kTiles][kParts][2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      uint32_t packed[2][3];
      if constexpr (kParts == 1) {
        packed[0][0] = pack_pair<M>(weights[t][0], weights[t][1]);
        packed[1][0] = pack_pair<M>(weights[t][2], weights[t][3]);
      } else {
        lamina::cuda::split_pair<M>(weights[t][0], weights[t][1], packed[0]);
        lamina::cuda::split_pair<M>(weights[t][2], weights[t][3], packed[1]);
      }
#pragma unroll
      for (int n = 0; n < kParts; ++n) {
        b[t][n][0] = transpose_square(packed[0][n]);
        b[t][n][1] = transpose_square(packed[1][n]);
      }
    }
    const auto add = [&](int m, const uint32_t(&a)[4]) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int n = kParts - 1; n >= 0; --n) mma_m16n8k16<M>(out[t][m], a, b[t][n][0], b[t][n][1]);
      }
    };
    if constexpr (kBytes) {
#pragma unroll
      for (int m = 0; m < kSteps; m += 2) {
        uint32_t raw[4];  // keys 0 to 7 and 8 to 15 of columns 16 m on, then of the next 16 columns
        ldmatrix_x4_trans(raw, values + Tile::at(lane % 16, m + lane / 16));
        add(m, {decoded_pair<0, 2>(raw[0]), decoded_pair<1, 3>(raw[0]), decoded_pair<0, 2>(raw[1]),
                decoded_pair<1, 3>(raw[1])});
        add(m + 1, {decoded_pair<0, 2>(raw[2]), decoded_pair<1, 3>(raw[2]), decoded_pair<0, 2>(raw[3]),
                    decoded_pair<1, 3>(raw[3])});
      }
    } else {
#pragma unroll
      for (int m = 0; m < kSteps; ++m) {
        uint32_t a[4];
        ldmatrix_x4_trans(a, values + Tile::at(lane / 16 * 8 + lane % 8, 2 * m + lane / 8 % 2));
        add(m, a);
      }
    }
  }

  /// The output column of element i of block m in a lane.
  __device__ static int column(int m, int i, int lane) {
    return kBytes ? 16 * m + lane / 4 * 2 + i / 2 : 16 * m + lane / 4 + i / 2 * 8;
  }
};

}  // namespace lamina::ops::cuda::paged
