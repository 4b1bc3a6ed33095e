#pragma once

// The products of one piece (64 positions) of the fused backward, which ssd_fused_backward_cuda.cu explains.

#include "lamina/ops/ssm/ssd_mma.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"

namespace lamina::ops::cuda::ssd_piece {

using namespace lamina::cuda;  // NOLINT: kernel helpers
using namespace ssd;           // NOLINT: kernel helpers

constexpr int kBackwardWarps = kBackwardThreads / kWarp;

/// Layout of shared memory. Rows have 64 or kN elements plus 16 bytes of padding.
template <int kN>
struct BackwardMemory {
  static constexpr int kMixedPitch = (kN + 8) * 2;
  static constexpr int kPitch = (kFeatures + 8) * 2;
  static constexpr int kMixed = kPiece * kMixedPitch;
  static constexpr int kPlain = kPiece * kPitch;
  static constexpr int kB = 0;
  static constexpr int kC = kB + kMixed;
  static constexpr int kState = kC + kMixed;
  static constexpr int kDstate = kState + kMixed;
  static constexpr int kX = kDstate + kMixed;
  static constexpr int kDy = kX + kPlain;
  static constexpr int kM = kDy + kPlain;
  static constexpr int kD = kM + kPlain;
  static constexpr int kDecays = kD + kPlain;
  static constexpr int kSums = kDecays + ChunkDecays::kBytes;
  static constexpr int kBytes = kSums + (8 * kPiece + kBackwardWarps) * 4;
};

/// Partial sums per position; each array has one row for each half of the columns.
struct GradientSums {
  float (*with_x)[kPiece];   ///< V · x
  float (*with_b)[kPiece];   ///< b · db
  float (*carried)[kPiece];  ///< the part of b · db that comes from after the piece
  float (*with_c)[kPiece];   ///< c · dc
  float* dots;               ///< H · dH' per warp

  __device__ explicit GradientSums(unsigned char* memory)
      : with_x(reinterpret_cast<float (*)[kPiece]>(memory)),
        with_b(with_x + 2),
        carried(with_b + 2),
        with_c(carried + 2),
        dots(reinterpret_cast<float*>(with_c + 2)) {}
};

struct SsdBackwardArgs {
  SsdShape shape;
  SsdStepSize size;
  const Half *x, *dt, *b, *c, *dy;
  const float *a, *d;  // d may be null
  const float* states;
  float* dstate;  // [batch, heads, p, n]: gradient after the last position; overwritten by the one before the first
  Half *dx, *ddt;
  float *db, *dc;  // [heads of a group, batch, seq, groups, n]: partial sums
  double* parts;   // [3, batch, heads]: for a, d and the bias
};

template <int kN>
struct FusedBackwardBlock {
  using Memory = BackwardMemory<kN>;
  static constexpr int kHalf = kN / 2;
  using Columns = float[kN / 16][4];  // 16 rows × half of the n columns

  const SsdBackwardArgs& args;
  int64_t entry, head, group;
  unsigned char* memory;
  uint32_t shared;
  int lane, row, side;  ///< which 16 rows and which half of the columns this warp handles

  __device__ ChunkDecays decays() const { return ChunkDecays(memory + Memory::kDecays); }
  __device__ GradientSums gradient_sums() const { return GradientSums(memory + Memory::kSums); }
  __device__ int64_t x_at(int64_t t) const {
    return ((entry * args.shape.seq + t) * args.shape.heads + head) * args.shape.p;
  }
  __device__ int64_t mixed_at(int64_t t) const {
    return ((entry * args.shape.seq + t) * args.shape.groups + group) * args.shape.n;
  }
  __device__ uint32_t place(int first, int pitch, int r, int column) const {
    return shared + first + r * pitch + column * 2;
  }
  /// Loads the 16 × 16 elements from row r and `column` on, as a left operand. Transposed, as a right operand whose
  /// rows run along k.
  __device__ void load_down(uint32_t (&to)[4], int first, int pitch, int r, int column) const {
    ldmatrix_x4(to, LdmatrixLane::downwards(lane).at(place(first, pitch, r, column), pitch));
  }
  __device__ void load_down_turned(uint32_t (&to)[4], int first, int pitch, int r, int column) const {
    ldmatrix_x4_trans(to, LdmatrixLane::downwards(lane).at(place(first, pitch, r, column), pitch));
  }
  /// Loads the same elements as a right operand whose columns run along k. Transposed, as a left operand whose rows run
  /// along k.
  __device__ void load_right(uint32_t (&to)[4], int first, int pitch, int r, int column) const {
    ldmatrix_x4(to, LdmatrixLane::rightwards(lane).at(place(first, pitch, r, column), pitch));
  }
  __device__ void load_right_turned(uint32_t (&to)[4], int first, int pitch, int r, int column) const {
    ldmatrix_x4_trans(to, LdmatrixLane::rightwards(lane).at(place(first, pitch, r, column), pitch));
  }
  __device__ float2 pair_at(int first, int pitch, int r, int column) const {
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(memory + first + r * pitch + column * 2);
    return {low_of(pair), high_of(pair)};
  }

  __device__ void copy(int64_t first) const {
    const SsdShape& shape = args.shape;
    constexpr int kPacks = kN / 8;
    for (int i = threadIdx.x; i < kPiece * kPacks; i += kBackwardThreads) {
      const int r = i / kPacks;
      const int pack = i % kPacks;
      if (pack * 8 >= shape.n) continue;
      const bool inside = first + r < shape.seq;
      const int64_t from = inside ? mixed_at(first + r) + pack * 8 : 0;
      cp_async_16(place(Memory::kB, Memory::kMixedPitch, r, pack * 8), args.b + from, inside);
      cp_async_16(place(Memory::kC, Memory::kMixedPitch, r, pack * 8), args.c + from, inside);
    }
    for (int i = threadIdx.x; i < kPiece * (kFeatures / 8); i += kBackwardThreads) {
      const int r = i / (kFeatures / 8);
      const int pack = i % (kFeatures / 8);
      if (pack * 8 >= shape.p) continue;
      const bool inside = first + r < shape.seq;
      const int64_t from = inside ? x_at(first + r) + pack * 8 : 0;
      cp_async_16(place(Memory::kX, Memory::kPitch, r, pack * 8), args.x + from, inside);
      cp_async_16(place(Memory::kDy, Memory::kPitch, r, pack * 8), args.dy + from, inside);
    }
    cp_async_commit();
  }
  /// Loads the state before the piece to shared memory, rounded to bf16.
  __device__ void take_state(int64_t first) const {
    const SsdShape& shape = args.shape;
    const int64_t chunk = (entry * shape.chunks + first / shape.size) * shape.heads + head;
    const float* from = args.states + chunk * shape.p * shape.n;
    constexpr int kFours = kN / 4;
    for (int i = threadIdx.x; i < kFeatures * kFours; i += kBackwardThreads) {
      const int r = i / kFours;
      const int column = i % kFours * 4;
      if (r >= shape.p || column >= shape.n) continue;
      const float4 four = *reinterpret_cast<const float4*>(from + r * shape.n + column);
      *reinterpret_cast<uint2*>(memory + Memory::kState + r * Memory::kMixedPitch + column * 2) =
          make_uint2(rounded_pair(four.x, four.y), rounded_pair(four.z, four.w));
    }
  }
  /// Calls fn(j, i, feature, column) for each pair of the state gradient that this lane holds, including padding.
  template <class F>
  __device__ void each_pair(const F& fn) const {
#pragma unroll
    for (int j = 0; j < kN / 16; ++j) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        fn(j, i, row * 16 + lane / 4 + i * 4, side * kHalf + j * 8 + lane % 4 * 2);
      }
    }
  }

  /// Computes M and D for 16 rows s and two 16 × 16 blocks of columns t, and writes them to shared memory. Blocks on
  /// the side of the diagonal that is always zero are neither written nor read.
  __device__ void find_triangles() const {
    float pairs[4][4] = {};
    float grads[4][4] = {};
    uint32_t left[4];
    uint32_t right[4];
#pragma unroll
    for (int k = 0; k < kN; k += 16) {
      load_down(left, Memory::kB, Memory::kMixedPitch, row * 16, k);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (side * 2 + i < row) continue;
        load_right(right, Memory::kC, Memory::kMixedPitch, (side * 2 + i) * 16, k);
        mma_m16n8k16<Half>(pairs[2 * i], left, right[0], right[1]);
        mma_m16n8k16<Half>(pairs[2 * i + 1], left, right[2], right[3]);
      }
    }
#pragma unroll
    for (int k = 0; k < kFeatures; k += 16) {
      load_down(left, Memory::kX, Memory::kPitch, row * 16, k);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (side * 2 + i < row) continue;
        load_right(right, Memory::kDy, Memory::kPitch, (side * 2 + i) * 16, k);
        mma_m16n8k16<Half>(grads[2 * i], left, right[0], right[1]);
        mma_m16n8k16<Half>(grads[2 * i + 1], left, right[2], right[3]);
      }
    }
    const ChunkDecays n = decays();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (side * 2 + j / 2 < row) continue;
      const int t = side * 32 + j * 8 + lane % 4 * 2;
      const float2 sum = *reinterpret_cast<const float2*>(n.sum + t);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int s = row * 16 + lane / 4 + r * 8;
        const float low = t >= s ? fast_exp2(sum.x - n.sum[s]) : 0.0F;
        const float high = t + 1 >= s ? fast_exp2(sum.y - n.sum[s]) : 0.0F;
        const float step = n.step[s];
        const int at = s * Memory::kPitch + t * 2;
        *reinterpret_cast<uint32_t*>(memory + Memory::kM + at) =
            rounded_pair(pairs[j][2 * r] * low, pairs[j][2 * r + 1] * high);
        *reinterpret_cast<uint32_t*>(memory + Memory::kD + at) =
            rounded_pair(grads[j][2 * r] * (low * step), grads[j][2 * r + 1] * (high * step));
      }
    }
  }

  /// Computes dx of 16 positions and 32 features; returns this lane's part of dy · x.
  __device__ float put_dx(int64_t first) const {
    float v[4][4] = {};
    uint32_t left[4];
    uint32_t right[4];
#pragma unroll
    for (int k = 0; k < kN; k += 16) {
      load_down(left, Memory::kB, Memory::kMixedPitch, row * 16, k);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        load_right(right, Memory::kDstate, Memory::kMixedPitch, side * 32 + j * 16, k);
        mma_m16n8k16<Half>(v[2 * j], left, right[0], right[1]);
        mma_m16n8k16<Half>(v[2 * j + 1], left, right[2], right[3]);
      }
    }
    const ChunkDecays n = decays();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[j][i] *= n.to_end[row * 16 + lane / 4 + i / 2 * 8];
    }
    for (int i = row; i < 4; ++i) {
      load_down(left, Memory::kM, Memory::kPitch, row * 16, i * 16);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        load_down_turned(right, Memory::kDy, Memory::kPitch, i * 16, side * 32 + j * 16);
        mma_m16n8k16<Half>(v[2 * j], left, right[0], right[1]);
        mma_m16n8k16<Half>(v[2 * j + 1], left, right[2], right[3]);
      }
    }
    const float skip = args.d != nullptr ? args.d[head] : 0.0F;
    float dy_x = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int s = row * 16 + lane / 4 + r * 8;
      const bool inside = first + s < args.shape.seq;
      const float step = n.step[s];
      float with_x = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = side * 32 + j * 8 + lane % 4 * 2;
        const float2 x = pair_at(Memory::kX, Memory::kPitch, s, column);
        const float2 dy = pair_at(Memory::kDy, Memory::kPitch, s, column);
        const float low = v[j][2 * r];
        const float high = v[j][2 * r + 1];
        with_x = fmaf(low, x.x, fmaf(high, x.y, with_x));
        dy_x = fmaf(dy.x, x.x, fmaf(dy.y, x.y, dy_x));
        if (inside && column < args.shape.p) {
          *reinterpret_cast<uint32_t*>(args.dx + x_at(first + s) + column) =
              rounded_pair(fmaf(step, low, skip * dy.x), fmaf(step, high, skip * dy.y));
        }
      }
      with_x = group_sum(with_x, 4);
      if (lane % 4 == 0) gradient_sums().with_x[side][s] = with_x;
    }
    return dy_x;
  }

  /// Writes the dot products of 16 rows of `sums` with the rows of `with`, over this half of the columns.
  __device__ void put_dots(const Columns& sums, int with, float* to) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = row * 16 + lane / 4 + r * 8;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kN / 16; ++j) {
        const float2 other = pair_at(with, Memory::kMixedPitch, t, side * kHalf + j * 8 + lane % 4 * 2);
        sum = fmaf(sums[j][2 * r], other.x, fmaf(sums[j][2 * r + 1], other.y, sum));
      }
      sum = group_sum(sum, 4);
      if (lane % 4 == 0) to[t] = sum;
    }
  }
  __device__ void put_mixed(const Columns& sums, int64_t first, float* to) const {
    to += head % args.shape.in_group * args.shape.batch * args.shape.seq * args.shape.mixed_stride();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t t = first + row * 16 + lane / 4 + r * 8;
      if (t >= args.shape.seq) continue;
#pragma unroll
      for (int j = 0; j < kN / 16; ++j) {
        const int column = side * kHalf + j * 8 + lane % 4 * 2;
        if (column >= args.shape.n) continue;
        *reinterpret_cast<float2*>(to + mixed_at(t) + column) = make_float2(sums[j][2 * r], sums[j][2 * r + 1]);
      }
    }
  }
  /// sums += left · this half of the columns of `of`, whose rows from k on run along k.
  __device__ void add_columns(Columns& sums, const uint32_t (&left)[4], int of, int k) const {
    uint32_t right[4];
#pragma unroll
    for (int j = 0; j < kHalf; j += 16) {
      load_down_turned(right, of, Memory::kMixedPitch, k, side * kHalf + j);
      mma_m16n8k16<Half>(sums[j / 8], left, right[0], right[1]);
      mma_m16n8k16<Half>(sums[j / 8 + 1], left, right[2], right[3]);
    }
  }
  template <class F>
  static __device__ void scale_rows(Columns& sums, const F& factor) {
    const float by[2] = {factor(0), factor(8)};
#pragma unroll
    for (int j = 0; j < kN / 16; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] *= by[i / 2];
    }
  }

  __device__ void put_db(int64_t first) const {
    Columns sums = {};
    uint32_t left[4];
#pragma unroll
    for (int k = 0; k < kFeatures; k += 16) {
      load_down(left, Memory::kX, Memory::kPitch, row * 16, k);
      add_columns(sums, left, Memory::kDstate, k);
    }
    const ChunkDecays n = decays();
    const int s = row * 16 + lane / 4;
    scale_rows(sums, [&](int below) { return n.step[s + below] * n.to_end[s + below]; });
    put_dots(sums, Memory::kB, gradient_sums().carried[side]);
    for (int i = row; i < 4; ++i) {
      load_down(left, Memory::kD, Memory::kPitch, row * 16, i * 16);
      add_columns(sums, left, Memory::kC, i * 16);
    }
    put_dots(sums, Memory::kB, gradient_sums().with_b[side]);
    put_mixed(sums, first, args.db);
  }

  __device__ void put_dc(int64_t first) const {
    Columns sums = {};
    uint32_t left[4];
#pragma unroll
    for (int k = 0; k < kFeatures; k += 16) {
      load_down(left, Memory::kDy, Memory::kPitch, row * 16, k);
      add_columns(sums, left, Memory::kState, k);
    }
    const ChunkDecays n = decays();
    const int t = row * 16 + lane / 4;
    scale_rows(sums, [&](int below) { return fast_exp2(n.sum[t + below]); });
    for (int i = 0; i <= row; ++i) {
      load_right_turned(left, Memory::kD, Memory::kPitch, i * 16, row * 16);
      add_columns(sums, left, Memory::kB, i * 16);
    }
    put_dots(sums, Memory::kC, gradient_sums().with_c[side]);
    put_mixed(sums, first, args.dc);
  }

  /// Replaces the state gradient after the piece by the one before it. Writes the dot product H · dH'.
  __device__ void move_gradient(Columns& dh) const {
    float dot = 0;
    each_pair([&](int j, int i, int feature, int column) {
      const float2 h = pair_at(Memory::kState, Memory::kMixedPitch, feature, column);
      dot = fmaf(dh[j][i], h.x, fmaf(dh[j][i + 1], h.y, dot));
    });
    dot = warp_sum(dot);
    if (lane == 0) gradient_sums().dots[threadIdx.x / kWarp] = dot;
    const ChunkDecays n = decays();
    const float whole = *n.whole;
    scale_rows(dh, [&](int) { return whole; });
#pragma unroll
    for (int k = 0; k < kPiece; k += 16) {
      uint32_t left[4];
      load_right_turned(left, Memory::kDy, Memory::kPitch, k, row * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 sum = *reinterpret_cast<const float2*>(n.sum + k + i / 2 * 8 + lane % 4 * 2);
        left[i] = rounded_pair(low_of(left[i]) * fast_exp2(sum.x), high_of(left[i]) * fast_exp2(sum.y));
      }
      add_columns(dh, left, Memory::kC, k);
    }
  }
};

}  // namespace lamina::ops::cuda::ssd_piece
