// Fused backward of the chunked bf16 scan, the counterpart of ssd_fused_cuda.cu. A block takes a head back through the
// sequence, 64 positions at a time, with the gradient of the state in f32 registers; forward saved the states before
// each piece. With L the decays from s to t, all products run on tensor cores from shared memory. Their bf16 operands
// are x, dy, b and c, the state and its gradient (rounded), and two triangular matrices computed first:
//   M = (b cᵀ) ∘ L and D = (x dyᵀ) ∘ L · Δ, rows s, columns t
//   V = M dy + to_end ∘ (b dH'ᵀ), dx = Δ V + d dy
//   db = D c + Δ to_end ∘ (x dH'), dc = Dᵀ b + from_start ∘ (dy H)
// The gradient of the running sum s_t needs sums over D ∘ (b cᵀ), which are c·dc and b·db; a warp accumulates these
// from the end. db and dc of a head are partial sums that a small kernel adds in order, and so are the sums for a, d
// and the bias.
#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/ssd_mma.cuh"
#include "lamina/ops/ssm/ssd_scan_kernel.h"
#include "lamina/tensor/cuda/async_copy.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: what kernels share
using namespace ssd;           // NOLINT: what both directions share

constexpr int kWalkWarps = kWalkThreads / kWarp;

/// Shared memory layout; rows of 64 or kN elements plus 16 bytes of padding.
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
  static constexpr int kNumbers = kD + kPlain;
  static constexpr int kSums = kNumbers + Numbers::kBytes;
  static constexpr int kBytes = kSums + (8 * kPiece + kWalkWarps) * 4;
};

/// Partial sums per position, one for each half of the columns.
struct Shares {
  float (*with_x)[kPiece];   ///< V · x
  float (*with_b)[kPiece];   ///< b · db
  float (*carried)[kPiece];  ///< its part that comes from after the piece
  float (*with_c)[kPiece];   ///< c · dc
  float* dots;               ///< H · dH' per warp

  __device__ explicit Shares(unsigned char* memory)
      : with_x(reinterpret_cast<float (*)[kPiece]>(memory)),
        with_b(with_x + 2),
        carried(with_b + 2),
        with_c(carried + 2),
        dots(reinterpret_cast<float*>(with_c + 2)) {}
};

struct WalkBack {
  SsdShape shape;
  SsdStepSize size;
  const Half *x, *dt, *b, *c, *dy;
  const float *a, *d;  // d may be null
  const float* states;
  float* dstate;  // [batch, heads, p, n]: after the last position, then before the first
  Half *dx, *ddt;
  float *db, *dc;  // [heads of a group, batch, seq, groups, n]
  double* parts;   // [3, batch, heads]: for a, d and the bias
};

template <int kN>
struct BackWalker {
  using Memory = BackwardMemory<kN>;
  static constexpr int kHalf = kN / 2;
  using Columns = float[kN / 16][4];  // 16 rows × half of n

  const WalkBack& args;
  int64_t entry, head, group;
  unsigned char* memory;
  uint32_t shared;
  int lane, row, side;  ///< which 16 rows and which half of the columns this warp has

  __device__ Numbers numbers() const { return Numbers(memory + Memory::kNumbers); }
  __device__ Shares shares() const { return Shares(memory + Memory::kSums); }
  __device__ int64_t x_at(int64_t t) const {
    return ((entry * args.shape.seq + t) * args.shape.heads + head) * args.shape.p;
  }
  __device__ int64_t mixed_at(int64_t t) const {
    return ((entry * args.shape.seq + t) * args.shape.groups + group) * args.shape.n;
  }
  __device__ uint32_t place(int first, int pitch, int r, int column) const {
    return shared + first + r * pitch + column * 2;
  }
  /// Loads 16 × 16 elements from row r and column on: as left operand or, transposed, as right operand whose rows run
  /// along k.
  __device__ void load_down(uint32_t (&to)[4], int first, int pitch, int r, int column) const {
    ldmatrix_x4(to, SquareLane::downwards(lane).at(place(first, pitch, r, column), pitch));
  }
  __device__ void load_down_turned(uint32_t (&to)[4], int first, int pitch, int r, int column) const {
    ldmatrix_x4_trans(to, SquareLane::downwards(lane).at(place(first, pitch, r, column), pitch));
  }
  /// Loads the same elements as right operand whose columns run along k or, transposed, as left operand whose rows run
  /// along k.
  __device__ void load_right(uint32_t (&to)[4], int first, int pitch, int r, int column) const {
    ldmatrix_x4(to, SquareLane::rightwards(lane).at(place(first, pitch, r, column), pitch));
  }
  __device__ void load_right_turned(uint32_t (&to)[4], int first, int pitch, int r, int column) const {
    ldmatrix_x4_trans(to, SquareLane::rightwards(lane).at(place(first, pitch, r, column), pitch));
  }
  __device__ float2 pair_at(int first, int pitch, int r, int column) const {
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(memory + first + r * pitch + column * 2);
    return {low_of(pair), high_of(pair)};
  }

  __device__ void copy(int64_t first) const {
    const SsdShape& shape = args.shape;
    constexpr int kPacks = kN / 8;
    for (int i = threadIdx.x; i < kPiece * kPacks; i += kWalkThreads) {
      const int r = i / kPacks;
      const int pack = i % kPacks;
      if (pack * 8 >= shape.n) continue;
      const bool inside = first + r < shape.seq;
      const int64_t from = inside ? mixed_at(first + r) + pack * 8 : 0;
      cp_async_16(place(Memory::kB, Memory::kMixedPitch, r, pack * 8), args.b + from, inside);
      cp_async_16(place(Memory::kC, Memory::kMixedPitch, r, pack * 8), args.c + from, inside);
    }
    for (int i = threadIdx.x; i < kPiece * (kFeatures / 8); i += kWalkThreads) {
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
  /// Loads the state before the piece, rounded to bf16.
  __device__ void take_state(int64_t first) const {
    const SsdShape& shape = args.shape;
    const int64_t chunk = (entry * shape.chunks + first / shape.size) * shape.heads + head;
    const float* from = args.states + chunk * shape.p * shape.n;
    constexpr int kFours = kN / 4;
    for (int i = threadIdx.x; i < kFeatures * kFours; i += kWalkThreads) {
      const int r = i / kFours;
      const int column = i % kFours * 4;
      if (r >= shape.p || column >= shape.n) continue;
      const float4 four = *reinterpret_cast<const float4*>(from + r * shape.n + column);
      *reinterpret_cast<uint2*>(memory + Memory::kState + r * Memory::kMixedPitch + column * 2) =
          make_uint2(rounded_pair(four.x, four.y), rounded_pair(four.z, four.w));
    }
  }
  /// Calls fn(j, i, feature, column) for this lane's pairs of the state gradient, including padding.
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

  /// Writes M and D of rows s and two 16 × 16 blocks of columns t to shared memory. Blocks on the unused side of the
  /// diagonal are neither written nor read.
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
        multiply_add<Half>(pairs[2 * i], left, right[0], right[1]);
        multiply_add<Half>(pairs[2 * i + 1], left, right[2], right[3]);
      }
    }
#pragma unroll
    for (int k = 0; k < kFeatures; k += 16) {
      load_down(left, Memory::kX, Memory::kPitch, row * 16, k);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (side * 2 + i < row) continue;
        load_right(right, Memory::kDy, Memory::kPitch, (side * 2 + i) * 16, k);
        multiply_add<Half>(grads[2 * i], left, right[0], right[1]);
        multiply_add<Half>(grads[2 * i + 1], left, right[2], right[3]);
      }
    }
    const Numbers n = numbers();
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

  /// dx of 16 positions and 32 features; returns this lane's part of dy · x.
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
        multiply_add<Half>(v[2 * j], left, right[0], right[1]);
        multiply_add<Half>(v[2 * j + 1], left, right[2], right[3]);
      }
    }
    const Numbers n = numbers();
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
        multiply_add<Half>(v[2 * j], left, right[0], right[1]);
        multiply_add<Half>(v[2 * j + 1], left, right[2], right[3]);
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
      if (lane % 4 == 0) shares().with_x[side][s] = with_x;
    }
    return dy_x;
  }

  /// Dot products of 16 rows of `sums` and of `with`, complete for this half of the columns.
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
  /// sums += left · half of the columns of `of`, whose rows from k on run along k.
  __device__ void add_columns(Columns& sums, const uint32_t (&left)[4], int of, int k) const {
    uint32_t right[4];
#pragma unroll
    for (int j = 0; j < kHalf; j += 16) {
      load_down_turned(right, of, Memory::kMixedPitch, k, side * kHalf + j);
      multiply_add<Half>(sums[j / 8], left, right[0], right[1]);
      multiply_add<Half>(sums[j / 8 + 1], left, right[2], right[3]);
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
    const Numbers n = numbers();
    const int s = row * 16 + lane / 4;
    scale_rows(sums, [&](int below) { return n.step[s + below] * n.to_end[s + below]; });
    put_dots(sums, Memory::kB, shares().carried[side]);
    for (int i = row; i < 4; ++i) {
      load_down(left, Memory::kD, Memory::kPitch, row * 16, i * 16);
      add_columns(sums, left, Memory::kC, i * 16);
    }
    put_dots(sums, Memory::kB, shares().with_b[side]);
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
    const Numbers n = numbers();
    const int t = row * 16 + lane / 4;
    scale_rows(sums, [&](int below) { return fast_exp2(n.sum[t + below]); });
    for (int i = 0; i <= row; ++i) {
      load_right_turned(left, Memory::kD, Memory::kPitch, i * 16, row * 16);
      add_columns(sums, left, Memory::kB, i * 16);
    }
    put_dots(sums, Memory::kC, shares().with_c[side]);
    put_mixed(sums, first, args.dc);
  }

  /// Moves the state gradient from after the piece to before it; writes H · dH'.
  __device__ void move_gradient(Columns& dh) const {
    float dot = 0;
    each_pair([&](int j, int i, int feature, int column) {
      const float2 h = pair_at(Memory::kState, Memory::kMixedPitch, feature, column);
      dot = fmaf(dh[j][i], h.x, fmaf(dh[j][i + 1], h.y, dot));
    });
    dot = warp_sum(dot);
    if (lane == 0) shares().dots[threadIdx.x / kWarp] = dot;
    const Numbers n = numbers();
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

/// Positions `lane` and `lane` + 32 of a piece in a lane of the first warp, and its sums over all pieces.
struct StepGradients {
  float raw[2], step[2];
  double da = 0, dbias = 0;

  __device__ void load(const WalkBack& args, int64_t entry, int64_t head, int64_t first, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t t = first + lane + i * kWarp;
      raw[i] = step[i] = 0.0F;
      if (t < 0 || t >= args.shape.seq) continue;
      raw[i] = args.size.raw(to_float(args.dt[(entry * args.shape.seq + t) * args.shape.heads + head]), head);
      step[i] = args.size.clamped(args.size.soft(raw[i]));
    }
  }
  /// Writes the gradients of dt from the partial sums of the piece.
  __device__ void put(const WalkBack& args, const Shares& of, float whole, int64_t entry, int64_t head, int64_t first,
                      int lane) {
    const auto both = [](float(*shares)[kPiece], int t) { return shares[0][t] + shares[1][t]; };
    float change[2];
    float carried = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = lane + i * kWarp;
      change[i] = both(of.with_c, t) - both(of.with_b, t);
      carried += both(of.carried, t);
    }
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kWalkWarps; ++i) dot += of.dots[i];
    const float behind = fmaf(whole, dot, warp_sum(carried));
    float later[2];
    later[1] = inclusive_sum(change[1], lane, true) + behind;
    later[0] = inclusive_sum(change[0], lane, true) + __shfl_sync(kAllLanes, later[1], 0);
    const float a = args.a[head];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t t = first + lane + i * kWarp;
      if (t >= args.shape.seq) continue;
      const bool free = args.size.soft(raw[i]) == step[i];
      float dstep = free ? fmaf(later[i], a, both(of.with_x, lane + i * kWarp)) : 0.0F;
      if (args.size.with_softplus) dstep *= sigmoid(raw[i]);
      da += static_cast<double>(later[i]) * static_cast<double>(step[i]);
      dbias += static_cast<double>(dstep);
      args.ddt[(entry * args.shape.seq + t) * args.shape.heads + head] = from_float<Half>(dstep);
    }
    __syncwarp();  // all lanes have read what this warp overwrites next
  }
};

__device__ inline double warp_sum_of(double value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

template <int kN>
__global__ void __launch_bounds__(kWalkThreads, 2) ssd_walk_back_kernel(const __grid_constant__ WalkBack args) {
  using Memory = BackwardMemory<kN>;
  extern __shared__ __align__(16) unsigned char back_memory[];
  __shared__ float scratch[kWarp];
  const SsdShape& shape = args.shape;
  const int64_t entry = blockIdx.x / shape.heads;
  const int64_t head = blockIdx.x - entry * shape.heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const BackWalker<kN> walker{args,
                              entry,
                              head,
                              head / shape.in_group,
                              back_memory,
                              shared_address(back_memory),
                              static_cast<int>(threadIdx.x) % kWarp,
                              warp % 4,
                              warp / 4};
  for (int i = threadIdx.x; i < Memory::kNumbers / 16; i += kWalkThreads) {
    reinterpret_cast<uint4*>(back_memory)[i] = make_uint4(0, 0, 0, 0);  // padding that no copy overwrites stays zero
  }
  __syncthreads();
  const int lane = walker.lane;
  float* dstate = args.dstate + blockIdx.x * shape.p * shape.n;
  typename BackWalker<kN>::Columns dh = {};
  walker.each_pair([&](int j, int i, int feature, int column) {
    if (feature >= shape.p || column >= shape.n) return;
    const float2 two = *reinterpret_cast<const float2*>(dstate + feature * shape.n + column);
    dh[j][i] = two.x, dh[j][i + 1] = two.y;
  });
  StepGradients steps;
  float dy_x = 0;
  const int64_t last = (shape.seq - 1) / kPiece * kPiece;
  for (int64_t first = last; first >= 0; first -= kPiece) {
    walker.copy(first);
    walker.take_state(first);
    walker.each_pair([&](int j, int i, int feature, int column) {
      *reinterpret_cast<uint32_t*>(back_memory + Memory::kDstate + feature * Memory::kMixedPitch + column * 2) =
          rounded_pair(dh[j][i], dh[j][i + 1]);
    });
    if (warp == 0) {
      steps.load(args, entry, head, first, lane);
      find_numbers(walker.numbers(), steps.step[0], steps.step[1], args.a[head], lane);
    }
    cp_async_wait();
    __syncthreads();
    walker.find_triangles();
    __syncthreads();
    dy_x += walker.put_dx(first);
    walker.put_db(first);
    walker.put_dc(first);
    walker.move_gradient(dh);
    __syncthreads();
    if (warp == 0) steps.put(args, walker.shares(), *walker.numbers().whole, entry, head, first, lane);
  }
  walker.each_pair([&](int j, int i, int feature, int column) {
    if (feature >= shape.p || column >= shape.n) return;
    *reinterpret_cast<float2*>(dstate + feature * shape.n + column) = make_float2(dh[j][i], dh[j][i + 1]);
  });
  const float dd = block_sum(dy_x, scratch);
  if (warp != 0) return;
  const double da = warp_sum_of(steps.da);
  const double dbias = warp_sum_of(steps.dbias);
  if (lane != 0) return;
  const int64_t count = shape.batch * shape.heads;
  args.parts[blockIdx.x] = da;
  args.parts[count + blockIdx.x] = dd;
  args.parts[2 * count + blockIdx.x] = dbias;
}

template <int kN>
void launch_walk_back(const Device& device, const WalkBack& walk) {
  constexpr int kBytes = BackwardMemory<kN>::kBytes;
  LAMINA_CUDA(cudaFuncSetAttribute(ssd_walk_back_kernel<kN>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "ssd_scan");
  const auto blocks = static_cast<unsigned>(walk.shape.batch * walk.shape.heads);
  ssd_walk_back_kernel<kN><<<blocks, kWalkThreads, kBytes, stream_of(device)>>>(walk);
  check_launch("ssd_scan");
}

}  // namespace

bool ssd_fused_backward(const SsdBackward& args) {
  const SsdForward& f = args.forward;
  const SsdShape shape(f);
  const auto aligned = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0; };
  const bool fits = f.x.dtype() == DType::bf16 && args.dy.dtype() == DType::bf16 && shape.n > 0 && shape.n <= 128 &&
                    shape.n % 8 == 0 && shape.p <= kFeatures && shape.p % 8 == 0 && aligned(f.x) && aligned(args.dy);
  if (!fits || (shape.size != kPiece && shape.seq > kPiece)) return false;
  const Device& device = f.x.device();
  int most = 0;  // dynamic shared memory limit; the kernel also declares a little statically
  LAMINA_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), "ssd_scan");
  if ((shape.n <= 64 ? BackwardMemory<64>::kBytes : BackwardMemory<128>::kBytes) > most - 1024) return false;
  const Tensor b = f.b.detach().to(DType::bf16);  // they were bf16 originally: lossless
  const Tensor c = f.c.detach().to(DType::bf16);
  const Tensor db = Tensor::empty({shape.in_group, f.b.numel()}, DType::f32, device);
  const Tensor dc = Tensor::empty(db.shape(), DType::f32, device);
  const Tensor parts = Tensor::empty({3, shape.batch, shape.heads}, DType::f64, device);
  const WalkBack walk{shape,
                      SsdStepSize(f.dt_bias, f.options),
                      device_data<bf16>(f.x),
                      device_data<bf16>(f.dt),
                      device_data<bf16>(b),
                      device_data<bf16>(c),
                      device_data<bf16>(args.dy),
                      device_data<float>(f.a),
                      device_data<float>(f.d),
                      device_data<float>(f.states),
                      args.dstate.data<float>(),
                      device_data<bf16>(args.dx),
                      device_data<bf16>(args.ddt),
                      db.data<float>(),
                      dc.data<float>(),
                      parts.data<double>()};
  shape.n <= 64 ? launch_walk_back<64>(device, walk) : launch_walk_back<128>(device, walk);
  add_parts("ssd_scan", db.data<float>(), shape.in_group, args.db.numel(), args.db);
  add_parts("ssd_scan", dc.data<float>(), shape.in_group, args.dc.numel(), args.dc);
  const int64_t count = shape.batch * shape.heads;
  ssd_add_heads(parts.data<double>(), shape.batch, shape.heads, args.da);
  ssd_add_heads(parts.data<double>() + count, shape.batch, shape.heads, args.dd);
  ssd_add_heads(parts.data<double>() + 2 * count, shape.batch, shape.heads, args.ddt_bias);
  return true;
}

}  // namespace lamina::ops::cuda
