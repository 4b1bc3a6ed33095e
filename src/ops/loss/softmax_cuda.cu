// A row is kept in the registers of a warp, or of a block if it is longer, in packs of 16 bytes. So it is read once and
// written once (backward reads two tensors). Unaligned rows and rows of more than kMostHeld packs are read twice,
// element by element, the second time from cache. For these each thread uses an online softmax: it rescales its sum
// when it finds a larger value.
#include "lamina/ops/elementwise/elements.cuh"
#include "lamina/ops/loss/online_sum.cuh"
#include "lamina/ops/loss/softmax_kernel.h"
#include "lamina/tensor/cuda/vector_access.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kThreads = 256;
constexpr int64_t kShort = 1024;   // longest row that a warp reads element by element
constexpr int kHeldPacks = 4;      // packs per thread
constexpr int kMostThreads = 512;  // threads of a block that keeps a row in registers
constexpr int kMostHeld = kHeldPacks * kMostThreads;

/// The threads that share a row: a warp or a block.
template <bool kBlock>
struct RowTeam {
  float* scratch;
  __device__ int lane() const { return kBlock ? threadIdx.x : threadIdx.x % kWarp; }
  __device__ int lanes() const { return kBlock ? blockDim.x : kWarp; }
  __device__ int64_t first_row() const {
    return kBlock ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  }
  __device__ int64_t rows_at_once() const { return static_cast<int64_t>(gridDim.x) * (kBlock ? 1 : kThreads / kWarp); }
  __device__ float sum(float value) const {
    if constexpr (kBlock) return block_sum(value, scratch);
    return warp_sum(value);
  }
  __device__ float most(float value) const {
    if constexpr (kBlock) return block_max(value, scratch);
    return warp_max(value);
  }
  /// Calls fn(k, p) for each of this thread's packs with index p < packs; k counts them. The loop over k is unrolled.
  template <int kPacks, class F>
  __device__ void each(int packs, const F& fn) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int p = lane() + k * lanes();
      if (p < packs) fn(k, p);
    }
  }
};

template <class T, bool kBlock, int kPacks, bool kLog>
__global__ void __launch_bounds__(kBlock ? kMostThreads : kThreads)
    forward_held(const T* x, T* y, int64_t rows, int packs) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float scratch[kWarp];
  const RowTeam<kBlock> team{scratch};
  for (int64_t row = team.first_row(); row < rows; row += team.rows_at_once()) {
    const int64_t at = row * packs * kSize;
    float held[kPacks][kSize];
    float most = -INFINITY;
    team.template each<kPacks>(packs, [&](int k, int p) {
      const Pack<T> pack = load_pack(x + at + p * kSize);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        held[k][j] = to_float(pack.values[j]);
        most = fmaxf(most, held[k][j]);
      }
    });
    most = team.most(most);
    float sum = 0.0F;
    team.template each<kPacks>(packs, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float power =
            std::is_same_v<T, float> ? expf(held[k][j] - most) : fast_exp2(fmaf(held[k][j], kLog2E, -most * kLog2E));
        sum += power;
        if constexpr (!kLog) held[k][j] = power;
      }
    });
    sum = team.sum(sum);
    const float shift = most + logf(sum);
    const float factor = 1.0F / sum;
    team.template each<kPacks>(packs, [&](int k, int p) {
      Pack<T> pack;
#pragma unroll
      for (int j = 0; j < kSize; ++j) pack.values[j] = from_float<T>(kLog ? held[k][j] - shift : held[k][j] * factor);
      store_vector(y + at + p * kSize, pack);
    });
  }
}

template <class T, bool kBlock, int kPacks>
__global__ void __launch_bounds__(kBlock ? kMostThreads : kThreads)
    backward_held(const T* y, const T* dy, T* dx, int64_t rows, int packs, bool log) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float scratch[kWarp];
  const RowTeam<kBlock> team{scratch};
  for (int64_t row = team.first_row(); row < rows; row += team.rows_at_once()) {
    const int64_t at = row * packs * kSize;
    Pack<T> values[kPacks];
    Pack<T> grads[kPacks];
    team.template each<kPacks>(packs, [&](int k, int p) {
      values[k] = load_pack(y + at + p * kSize);
      grads[k] = load_pack(dy + at + p * kSize);
    });
    float mine = 0.0F;
    team.template each<kPacks>(packs, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float grad = to_float(grads[k].values[j]);
        mine = log ? mine + grad : fmaf(grad, to_float(values[k].values[j]), mine);
      }
    });
    const float total = team.sum(mine);
    team.template each<kPacks>(packs, [&](int k, int p) {
      Pack<T> pack;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float grad = to_float(grads[k].values[j]);
        const float value = to_float(values[k].values[j]);
        pack.values[j] = from_float<T>(log ? fmaf(-exp_for<T>(value), total, grad) : value * (grad - total));
      }
      store_vector(dx + at + p * kSize, pack);
    });
  }
}

template <class T, bool kBlock>
__global__ void __launch_bounds__(kThreads) forward_rereading(const T* x, T* y, int64_t rows, int64_t width, bool log) {
  __shared__ float scratch[kWarp];
  const RowTeam<kBlock> team{scratch};
  for (int64_t row = team.first_row(); row < rows; row += team.rows_at_once()) {
    const T* from = x + row * width;
    OnlineSum mine;
    for (int64_t i = team.lane(); i < width; i += team.lanes()) mine.add(to_float(from[i]));
    const float most = team.most(mine.most);
    const float sum = team.sum(mine.sum_for(most));
    const float shift = log ? most + logf(sum) : most;
    const float factor = 1.0F / sum;
    for (int64_t i = team.lane(); i < width; i += team.lanes()) {
      const float value = to_float(from[i]) - shift;
      y[row * width + i] = from_float<T>(log ? value : expf(value) * factor);
    }
  }
}

template <class T, bool kBlock>
__global__ void __launch_bounds__(kThreads)
    backward_rereading(const T* y, const T* dy, T* dx, int64_t rows, int64_t width, bool log) {
  __shared__ float scratch[kWarp];
  const RowTeam<kBlock> team{scratch};
  for (int64_t row = team.first_row(); row < rows; row += team.rows_at_once()) {
    const int64_t at = row * width;
    float mine = 0.0F;
    for (int64_t i = team.lane(); i < width; i += team.lanes()) {
      const float grad = to_float(dy[at + i]);
      mine = log ? mine + grad : fmaf(grad, to_float(y[at + i]), mine);
    }
    const float total = team.sum(mine);
    for (int64_t i = team.lane(); i < width; i += team.lanes()) {
      const float grad = to_float(dy[at + i]);
      const float value = to_float(y[at + i]);
      dx[at + i] = from_float<T>(log ? fmaf(-expf(value), total, grad) : value * (grad - total));
    }
  }
}

/// Calls fn(block, packs per thread, grid, threads) with compile-time constants that suit rows of `packs` packs.
/// `block` says whether a row belongs to a block or a warp.
template <class F>
void visit_team(int64_t rows, int64_t packs, const F& fn) {
  const auto warps = [&](auto each) { fn(std::false_type{}, each, blocks_for(rows, kThreads / kWarp), kThreads); };
  if (packs <= kWarp) return warps(std::integral_constant<int, 1>{});
  if (packs <= 2 * kWarp) return warps(std::integral_constant<int, 2>{});
  if (packs <= kHeldPacks * kWarp) return warps(std::integral_constant<int, kHeldPacks>{});
  const int64_t threads = (packs + kHeldPacks * kWarp - 1) / (kHeldPacks * kWarp) * kWarp;
  fn(std::true_type{}, std::integral_constant<int, kHeldPacks>{}, blocks_for(rows, 1), static_cast<int>(threads));
}

}  // namespace

void softmax_forward(const SoftmaxForward& args) {
  if (args.y.numel() == 0) return;
  const int64_t width = args.x.dim(-1);
  const int64_t rows = args.x.numel() / width;
  const cudaStream_t stream = stream_of(args.x.device());
  visit_floating("softmax", args.x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    const T* x = device_data<E>(args.x);
    T* y = device_data<E>(args.y);
    const int64_t packs = width / Pack<T>::kSize;
    if (is_pack_aligned(x, width) && is_pack_aligned(y, width) && packs <= kMostHeld) {
      visit_team(rows, packs, [&](auto block, auto each, int blocks, int threads) {
        constexpr bool kBlock = decltype(block)::value;
        constexpr int kPacks = decltype(each)::value;
        const auto kernel = args.log ? forward_held<T, kBlock, kPacks, true> : forward_held<T, kBlock, kPacks, false>;
        kernel<<<blocks, threads, 0, stream>>>(x, y, rows, static_cast<int>(packs));
      });
    } else if (width <= kShort) {
      forward_rereading<T, false>
          <<<blocks_for(rows, kThreads / kWarp), kThreads, 0, stream>>>(x, y, rows, width, args.log);
    } else {
      forward_rereading<T, true><<<blocks_for(rows, 1), kThreads, 0, stream>>>(x, y, rows, width, args.log);
    }
    check_launch("softmax");
  });
}

void softmax_backward(const SoftmaxBackward& args) {
  if (args.y.numel() == 0) return;
  const int64_t width = args.y.dim(-1);
  const int64_t rows = args.y.numel() / width;
  const cudaStream_t stream = stream_of(args.y.device());
  visit_floating("softmax", args.y.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    const T* y = device_data<E>(args.y);
    const T* dy = device_data<E>(args.dy);
    T* dx = device_data<E>(args.dx);
    const int64_t packs = width / Pack<T>::kSize;
    if (is_pack_aligned(y, width) && is_pack_aligned(dy, width) && is_pack_aligned(dx, width) && packs <= kMostHeld) {
      visit_team(rows, packs, [&](auto block, auto each, int blocks, int threads) {
        backward_held<T, decltype(block)::value, decltype(each)::value>
            <<<blocks, threads, 0, stream>>>(y, dy, dx, rows, static_cast<int>(packs), args.log);
      });
    } else if (width <= kShort) {
      backward_rereading<T, false>
          <<<blocks_for(rows, kThreads / kWarp), kThreads, 0, stream>>>(y, dy, dx, rows, width, args.log);
    } else {
      backward_rereading<T, true><<<blocks_for(rows, 1), kThreads, 0, stream>>>(y, dy, dx, rows, width, args.log);
    }
    check_launch("softmax");
  });
}

}  // namespace lamina::ops::cuda
