// A warp takes a short row, a block a long one. The first pass finds the maximum and the sum of exponentials together
// (a thread rescales its sum when it meets a larger number), the second writes; it finds the row in the caches.
// Backward is one pass for the sum and one that writes.
#include "lamina/ops/loss/online_sum.cuh"
#include "lamina/ops/loss/softmax.h"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: what kernels share

constexpr int kThreads = 256;
constexpr int64_t kShort = 1024;

/// The threads that share a row: a warp or the block.
template <bool kBlock>
struct RowTeam {
  float* scratch;
  __device__ int lane() const { return kBlock ? threadIdx.x : threadIdx.x % kWarp; }
  __device__ int64_t lanes() const { return kBlock ? kThreads : kWarp; }
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
};

template <class T, bool kBlock>
__global__ void __launch_bounds__(kThreads) forward_kernel(const T* x, T* y, int64_t rows, int64_t width, bool log) {
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
    backward_kernel(const T* y, const T* dy, T* dx, int64_t rows, int64_t width, bool log) {
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
    if (width <= kShort) {
      forward_kernel<T, false>
          <<<blocks_for(rows, kThreads / kWarp), kThreads, 0, stream>>>(x, y, rows, width, args.log);
    } else {
      forward_kernel<T, true><<<blocks_for(rows, 1), kThreads, 0, stream>>>(x, y, rows, width, args.log);
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
    if (width <= kShort) {
      backward_kernel<T, false>
          <<<blocks_for(rows, kThreads / kWarp), kThreads, 0, stream>>>(y, dy, dx, rows, width, args.log);
    } else {
      backward_kernel<T, true><<<blocks_for(rows, 1), kThreads, 0, stream>>>(y, dy, dx, rows, width, args.log);
    }
    check_launch("softmax");
  });
}

}  // namespace lamina::ops::cuda
