// The chunked scan of bf16 in one launch: a block takes 64 features of a head through the sequence, 64 positions at a
// time, with the state [64, n] in registers, f32, sixteen of its rows a warp. What the next positions need is copied
// meanwhile. All products run on the matrix units: c·b, whose results stay in registers as the left side of the next
// product ((c·b) ∘ decay · Δ rounded to bf16, x as it is), c·Hᵀ with the state rounded to bf16, and what is added to
// the state, where decay · Δ · x is taken apart into three numbers of bf16 so that the state keeps f32's digits. x, b,
// c and y are read and written once by a head (b and c of a group come from the cache), states only where backward
// wants them.
#include "lamina/ops/ssm/ssd_scan.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/matrix_loads.cuh"
#include "lamina/tensor/cuda/mma.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: what kernels share
using Half = __nv_bfloat16;

constexpr int kPiece = 64;         // positions at a time
constexpr int kFeatures = 64;      // of a head in a block
constexpr int kWalkThreads = 128;  // 16 positions, and 16 features of the state, a warp

/// Shared memory; rows of 64 or kN elements and 16 bytes.
template <int kN>
struct WalkMemory {
  static constexpr int kMixedPitch = (kN + 8) * 2;
  static constexpr int kPitch = (kFeatures + 8) * 2;
  static constexpr int kMixed = kPiece * kMixedPitch;
  static constexpr int kStage = 2 * kMixed + kPiece * kPitch;  // b, c, x
  static constexpr int kState = 2 * kStage;
  static constexpr int kNumbers = kState + kFeatures * kMixedPitch;
  static constexpr int kBytes = kNumbers + (3 * kPiece + 1) * 4;
};

struct Walk {
  SsdShape shape;
  SsdStepSize size;
  const Half *x, *dt, *b, *c;
  const float *a, *d;  // d may be null
  Half* y;
  float* state;   // [batch, heads, p, n]: first and last
  float* states;  // or null
};

/// Of the positions of a piece.
struct Numbers {
  float* step;    // Δ
  float* sum;     // log2 of the decay from the piece's start
  float* weight;  // Δ · decay to the piece's end
  float* whole;   // decay over the piece
};

__device__ inline float inclusive_sum(float value, int lane, bool backwards) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const float other = backwards ? __shfl_down_sync(kAllLanes, value, step) : __shfl_up_sync(kAllLanes, value, step);
    if (backwards ? lane + step < kWarp : lane >= step) value += other;
  }
  return value;
}

/// A warp's work: raw steps of positions `lane` and `lane` + 32, zero steps behind the end.
__device__ inline void find_numbers(const Numbers& to, float first, float second, float rate, int lane) {
  const float here = first * rate;
  const float there = second * rate;
  const float sum = inclusive_sum(here, lane, false);
  const float sum_there = inclusive_sum(there, lane, false) + __shfl_sync(kAllLanes, sum, kWarp - 1);
  const float rest_there = inclusive_sum(there, lane, true);
  const float rest = inclusive_sum(here, lane, true) + __shfl_sync(kAllLanes, rest_there, 0);
  to.step[lane] = first;
  to.step[lane + kWarp] = second;
  to.sum[lane] = sum * kLog2E;
  to.sum[lane + kWarp] = sum_there * kLog2E;
  to.weight[lane] = first * expf(rest - here);
  to.weight[lane + kWarp] = second * expf(rest_there - there);
  if (lane == 0) *to.whole = expf(rest);
}

__device__ inline uint32_t rounded_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  __builtin_memcpy(&bits, &pair, 4);
  return bits;
}
__device__ inline float low_of(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_of(uint32_t pair) { return __uint_as_float(pair & 0xffff0000U); }

/// Takes `pair` ∘ weights apart: parts[0] + parts[1] + parts[2], each rounded to bf16.
__device__ inline void split_pair(uint32_t pair, float2 weights, uint32_t (&parts)[3]) {
  float low = low_of(pair) * weights.x;
  float high = high_of(pair) * weights.y;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    parts[i] = rounded_pair(low, high);
    low -= low_of(parts[i]);
    high -= high_of(parts[i]);
  }
}

template <int kN>
struct Walker {
  using Memory = WalkMemory<kN>;

  const Walk& args;
  int64_t entry, head;
  int features;  ///< of this block
  int64_t group;
  unsigned char* memory;
  uint32_t shared;
  int lane, warp;

  __device__ Numbers numbers() const {
    auto* first = reinterpret_cast<float*>(memory + Memory::kNumbers);
    return {first, first + kPiece, first + 2 * kPiece, first + 3 * kPiece};
  }
  /// First element of this block's features at position t.
  __device__ int64_t x_at(int64_t t, int64_t feature) const {
    return ((entry * args.shape.seq + t) * args.shape.heads + head) * args.shape.p + feature;
  }

  __device__ void copy(int64_t first, int stage, int64_t feature) const {
    const SsdShape& shape = args.shape;
    const uint32_t to = shared + stage * Memory::kStage;
    constexpr int kPacks = kN / 8;
    const int packs = static_cast<int>(shape.n / 8);
    for (int i = threadIdx.x; i < kPiece * kPacks; i += kWalkThreads) {
      const int row = i / kPacks;
      const int pack = i % kPacks;
      if (pack >= packs) continue;
      const bool inside = first + row < shape.seq;
      const int64_t from = inside ? ((entry * shape.seq + first + row) * shape.groups + group) * shape.n + pack * 8 : 0;
      const uint32_t place = to + row * Memory::kMixedPitch + pack * 16;
      copy_async(place, args.b + from, inside);
      copy_async(place + Memory::kMixed, args.c + from, inside);
    }
    for (int i = threadIdx.x; i < kPiece * (kFeatures / 8); i += kWalkThreads) {
      const int row = i / (kFeatures / 8);
      const int pack = i % (kFeatures / 8);
      if (pack * 8 >= features) continue;
      const bool inside = first + row < shape.seq;
      const int64_t from = inside ? x_at(first + row, feature) + pack * 8 : 0;
      copy_async(to + 2 * Memory::kMixed + row * Memory::kPitch + pack * 16, args.x + from, inside);
    }
    commit_copies();
  }

  /// Step size of a position; nothing moves behind the end.
  __device__ float step_at(int64_t t) const {
    if (t >= args.shape.seq) return 0.0F;
    const float raw = to_float(args.dt[(entry * args.shape.seq + t) * args.shape.heads + head]);
    return args.size.clamped(args.size.soft(args.size.raw(raw, head)));
  }

  /// fn(number, feature of the block, column) for pairs of the state that this lane has.
  template <class F>
  __device__ void each_pair(const F& fn) const {
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int feature = warp * 16 + lane / 4 + half * 8;
        const int column = j * 8 + lane % 4 * 2;
        if (feature < features && column < args.shape.n) fn(j, half * 2, feature, column);
      }
    }
  }
  __device__ void put_state(const float (&h)[kN / 8][4], float* to) const {
    each_pair([&](int j, int i, int feature, int column) {
      *reinterpret_cast<float2*>(to + feature * args.shape.n + column) = make_float2(h[j][i], h[j][i + 1]);
    });
  }

  /// y of 16 positions, up to d · x: sums[2 i + h] are columns 16 i + 8 h and following.
  __device__ void find_y(int stage, float (&sums)[8][4]) const {
    const uint32_t b = shared + stage * Memory::kStage;
    const uint32_t c = b + Memory::kMixed;
    const uint32_t x = c + Memory::kMixed;
    const SquareLane down = SquareLane::downwards(lane);
    const SquareLane right = SquareLane::rightwards(lane);
    const Numbers n = numbers();
    float pairs[8][4] = {};
#pragma unroll
    for (int k = 0; k < kN; k += 16) {
      uint32_t left[4];
      uint32_t other[4];
      load_squares(left, down.at(c + warp * 16 * Memory::kMixedPitch + k * 2, Memory::kMixedPitch));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i <= warp) {
          load_squares(other, right.at(b + i * 16 * Memory::kMixedPitch + k * 2, Memory::kMixedPitch));
          multiply_add<Half>(pairs[2 * i], left, other[0], other[1]);
          multiply_add<Half>(pairs[2 * i + 1], left, other[2], other[3]);
        }
        load_squares(other,
                     right.at(shared + Memory::kState + i * 16 * Memory::kMixedPitch + k * 2, Memory::kMixedPitch));
        multiply_add<Half>(sums[2 * i], left, other[0], other[1]);
        multiply_add<Half>(sums[2 * i + 1], left, other[2], other[3]);
      }
    }
    const int t = warp * 16 + lane / 4;
    const float decayed[2] = {n.sum[t], n.sum[t + 8]};
    const float from_start[2] = {power_of_two(decayed[0]), power_of_two(decayed[1])};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] *= from_start[i / 2];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i > warp) continue;
      uint32_t left[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int s = i * 16 + h * 8 + lane % 4 * 2;
        const float2 sum = *reinterpret_cast<const float2*>(n.sum + s);
        const float2 step = *reinterpret_cast<const float2*>(n.step + s);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float* pair = pairs[2 * i + h] + 2 * r;
          const float low = s <= t + r * 8 ? pair[0] * (power_of_two(decayed[r] - sum.x) * step.x) : 0.0F;
          const float high = s < t + r * 8 ? pair[1] * (power_of_two(decayed[r] - sum.y) * step.y) : 0.0F;
          left[2 * h + r] = rounded_pair(low, high);
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        uint32_t other[4];
        load_squares_turned(other, down.at(x + i * 16 * Memory::kPitch + j * 32, Memory::kPitch));
        multiply_add<Half>(sums[2 * j], left, other[0], other[1]);
        multiply_add<Half>(sums[2 * j + 1], left, other[2], other[3]);
      }
    }
  }

  __device__ void put_y(int64_t first, int stage, int64_t feature, const float (&sums)[8][4]) const {
    const unsigned char* x = memory + stage * Memory::kStage + 2 * Memory::kMixed;
    const float skip = args.d != nullptr ? args.d[head] : 0.0F;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = warp * 16 + lane / 4 + r * 8;
      if (first + t >= args.shape.seq) continue;
      Half* to = args.y + x_at(first + t, feature);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int column = j * 8 + lane % 4 * 2;
        if (column >= features) continue;
        const uint32_t own = *reinterpret_cast<const uint32_t*>(x + t * Memory::kPitch + column * 2);
        *reinterpret_cast<uint32_t*>(to + column) =
            rounded_pair(fmaf(skip, low_of(own), sums[j][2 * r]), fmaf(skip, high_of(own), sums[j][2 * r + 1]));
      }
    }
  }

  __device__ void move_state(int stage, float (&h)[kN / 8][4]) const {
    const uint32_t b = shared + stage * Memory::kStage;
    const uint32_t x = b + 2 * Memory::kMixed;
    const SquareLane down = SquareLane::downwards(lane);
    const SquareLane right = SquareLane::rightwards(lane);
    const Numbers n = numbers();
    const float whole = *n.whole;
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) h[j][i] *= whole;
    }
#pragma unroll
    for (int i = 0; i < kPiece; i += 16) {
      uint32_t taken[4];
      uint32_t left[3][4];
      load_squares_turned(taken, right.at(x + i * Memory::kPitch + warp * 32, Memory::kPitch));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        uint32_t parts[3];
        split_pair(taken[k], *reinterpret_cast<const float2*>(n.weight + i + k / 2 * 8 + lane % 4 * 2), parts);
#pragma unroll
        for (int part = 0; part < 3; ++part) left[part][k] = parts[part];
      }
#pragma unroll
      for (int j = 0; j < kN; j += 16) {
        uint32_t other[4];
        load_squares_turned(other, down.at(b + i * Memory::kMixedPitch + j * 2, Memory::kMixedPitch));
#pragma unroll
        for (int part = 2; part >= 0; --part) {
          multiply_add<Half>(h[j / 8], left[part], other[0], other[1]);
          multiply_add<Half>(h[j / 8 + 1], left[part], other[2], other[3]);
        }
      }
    }
  }
};

template <int kN>
__global__ void __launch_bounds__(kWalkThreads, 2) ssd_walk_kernel(const __grid_constant__ Walk args) {
  using Memory = WalkMemory<kN>;
  extern __shared__ __align__(16) unsigned char walk_memory[];
  const SsdShape& shape = args.shape;
  const int64_t blocks_of_head = (shape.p + kFeatures - 1) / kFeatures;
  const int64_t place = blockIdx.x / blocks_of_head;  // [batch, heads]
  const int64_t feature = (blockIdx.x - place * blocks_of_head) * kFeatures;
  Walker<kN> walker{args,
                    place / shape.heads,
                    place % shape.heads,
                    static_cast<int>(min(shape.p - feature, int64_t{kFeatures})),
                    place % shape.heads / shape.in_group,
                    walk_memory,
                    shared_address(walk_memory),
                    static_cast<int>(threadIdx.x) % kWarp,
                    static_cast<int>(threadIdx.x) / kWarp};
  for (int i = threadIdx.x; i < Memory::kNumbers / 16; i += kWalkThreads) {
    reinterpret_cast<uint4*>(walk_memory)[i] = make_uint4(0, 0, 0, 0);  // what no copy reaches stays so
  }
  __syncthreads();
  float h[kN / 8][4] = {};
  float* state = args.state + (place * shape.p + feature) * shape.n;
  walker.each_pair([&](int j, int i, int row, int column) {
    const float2 two = *reinterpret_cast<const float2*>(state + row * shape.n + column);
    h[j][i] = two.x, h[j][i + 1] = two.y;
  });
  walker.copy(0, 0, feature);
  const float rate = args.a[walker.head];
  const int lane = walker.lane;
  float next[2] = {walker.step_at(lane), walker.step_at(lane + kWarp)};
  int stage = 0;
  for (int64_t first = 0; first < shape.seq; first += kPiece, stage ^= 1) {
    walker.copy(first + kPiece, stage ^ 1, feature);
    if (walker.warp == 0) {
      find_numbers(walker.numbers(), next[0], next[1], rate, lane);
      next[0] = walker.step_at(first + kPiece + lane);
      next[1] = walker.step_at(first + kPiece + lane + kWarp);
    }
    if (args.states != nullptr && first % shape.size == 0) {
      const int64_t chunk = (walker.entry * shape.chunks + first / shape.size) * shape.heads + walker.head;
      walker.put_state(h, args.states + (chunk * shape.p + feature) * shape.n);
    }
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
      unsigned char* to = walk_memory + Memory::kState + (walker.warp * 16 + lane / 4) * Memory::kMixedPitch +
                          (j * 8 + lane % 4 * 2) * 2;
      *reinterpret_cast<uint32_t*>(to) = rounded_pair(h[j][0], h[j][1]);
      *reinterpret_cast<uint32_t*>(to + 8 * Memory::kMixedPitch) = rounded_pair(h[j][2], h[j][3]);
    }
    wait_for_copies<1>();
    __syncthreads();
    float sums[8][4] = {};
    walker.find_y(stage, sums);
    walker.put_y(first, stage, feature, sums);
    walker.move_state(stage, h);
    __syncthreads();  // the stage, the state in shared memory and the numbers may be replaced
  }
  wait_for_copies();
  walker.put_state(h, state);
}

template <int kN>
void launch_walk(const Device& device, const Walk& walk) {
  const auto blocks = walk.shape.batch * walk.shape.heads * SsdShape::tiles(walk.shape.p);
  constexpr int kBytes = WalkMemory<kN>::kBytes;
  LAMINA_CUDA(cudaFuncSetAttribute(ssd_walk_kernel<kN>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "ssd_scan");
  ssd_walk_kernel<kN><<<static_cast<unsigned>(blocks), kWalkThreads, kBytes, stream_of(device)>>>(walk);
  check_launch("ssd_scan");
}

}  // namespace

bool ssd_walk(const SsdForward& args) {
  const SsdShape shape(args);
  const bool fits = args.x.dtype() == DType::bf16 && shape.n > 0 && shape.n <= 128 && shape.n % 8 == 0 &&
                    shape.p % 8 == 0 && reinterpret_cast<uintptr_t>(args.x.raw()) % 16 == 0;
  if (!fits || (args.states.defined() && shape.chunks > 1 && shape.size % kPiece != 0)) return false;
  const Device& device = args.x.device();
  const Tensor b = args.b.detach().to(DType::bf16);  // as they came: nothing is lost
  const Tensor c = args.c.detach().to(DType::bf16);
  const Walk walk{shape,
                  SsdStepSize(args.dt_bias, args.options),
                  device_data<bf16>(args.x),
                  device_data<bf16>(args.dt),
                  device_data<bf16>(b),
                  device_data<bf16>(c),
                  device_data<float>(args.a),
                  device_data<float>(args.d),
                  device_data<bf16>(args.y),
                  args.state.data<float>(),
                  device_data<float>(args.states)};
  shape.n <= 64 ? launch_walk<64>(device, walk) : launch_walk<128>(device, walk);
  return true;
}

}  // namespace lamina::ops::cuda
