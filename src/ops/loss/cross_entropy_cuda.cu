// Cross entropy of rows that cross_entropy_held_cuda.cu does not handle: losses without gradients, gradients with known
// lse (both read the logits only once anyway), and rows above two megabytes.
//
// A block takes one row, read in packs of 16 bytes. Each thread keeps its own maximum and sum of exponentials (online
// softmax) and rescales them only when a batch of packs raises the maximum. Rows may be unaligned (a vocabulary of
// 50,257): elements before the first and after the last whole pack are processed one by one.
#include "lamina/ops/loss/cross_entropy_device.cuh"
#include "lamina/ops/loss/cross_entropy_kernel.h"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers
using loss::Rows;

constexpr int kRowThreads = 256;
constexpr int kCountThreads = 1024;
constexpr int kInFlight = 4;  // packs per thread in flight

/// A row split into leading single elements, aligned whole packs, and trailing single elements. If not `packed`, all
/// elements are single.
template <class T>
struct Cut {
  int64_t head, packs, n;
  __device__ Cut(const T* row, int64_t count, bool packed) : n(count) {
    constexpr int kSize = Pack<T>::kSize;
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
    head = packed ? min((kSize - past) % kSize, count) : count;
    packs = (count - head) / kSize;
  }
  /// Calls one(i) for every single element that this thread handles.
  template <class F>
  __device__ void singles(const F& one) const {
    const int64_t tail = head + packs * Pack<T>::kSize;
    for (int64_t i = threadIdx.x; i < head; i += blockDim.x) one(i);
    for (int64_t i = tail + threadIdx.x; i < n; i += blockDim.x) one(i);
  }
  /// Calls batch(base, held) for kInFlight packs of this thread at a time: packs base, base + blockDim.x, …. All are
  /// loaded before the first is used. Packs with an index ≥ `packs` do not exist and are not loaded.
  template <class F>
  __device__ void batches(const T* row, const F& batch) const {
    for (int64_t base = threadIdx.x; base < packs; base += kInFlight * blockDim.x) {
      Pack<T> held[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int64_t p = base + k * blockDim.x;
        if (p < packs) held[k] = load_pack(row + head + p * Pack<T>::kSize);
      }
      batch(base, held);
    }
  }
};

template <bool kPlain, class T>
__device__ loss::RowSums<kPlain> sum_row(const Rows& args, const T* row, const Cut<T>& cut, float unit,
                                         float* scratch) {
  using Sums = loss::RowSums<kPlain>;
  Sums mine;
  cut.singles([&](int64_t i) {
    const float x[1] = {Sums::element(args, to_float(row[i]), i)};
    mine.take(x, unit);
    if (!kPlain) mine.total += x[0];
  });
  cut.batches(row, [&](int64_t base, const Pack<T>(&held)[kInFlight]) {
    const auto first = [&](int k) {
      const int64_t p = base + k * blockDim.x;
      return p < cut.packs ? cut.head + p * Pack<T>::kSize : -1;
    };
    mine.take_packs(args, held, first, unit);
  });
  return mine.of_block(args, unit, scratch);
}

template <bool kPlain, class T>
__device__ void write_gradient(const Rows& args, const T* row, T* out, const Cut<T>& cut,
                               const loss::RowGradient<kPlain, T>& gradient) {
  constexpr int kSize = Pack<T>::kSize;
  cut.singles([&](int64_t i) { out[i] = gradient.of_one(args, to_float(row[i]), i); });
  cut.batches(row, [&](int64_t base, const Pack<T>(&held)[kInFlight]) {
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int64_t p = base + k * blockDim.x;
      if (p >= cut.packs) break;
      const int64_t first = cut.head + p * kSize;
      float x[kSize];
#pragma unroll
      for (int j = 0; j < kSize; ++j) x[j] = to_float(held[k].values[j]);
      store_vector(out + first, gradient.of(args, x, first));
    }
  });
}

template <class T>
__device__ void write_zeros(T* out, const Cut<T>& cut) {
  cut.singles([&](int64_t i) { out[i] = from_float<T>(0.0F); });
  for (int64_t p = threadIdx.x; p < cut.packs; p += blockDim.x) {
    store_vector(out + cut.head + p * Pack<T>::kSize, loss::zeros<T>());
  }
}

/// A block per row. dlogits null: computes only losses. losses null: lse is given, and only gradients are computed.
/// dlogits may alias logits, because each thread writes only what it has read. packed: rows of logits and dlogits have
/// the same offset from a 16-byte boundary.
template <class T, bool kPlain>
__global__ void __launch_bounds__(kRowThreads, 3)
    row_per_block(const T* logits, T* dlogits, const __grid_constant__ Rows args, bool packed) {
  __shared__ float scratch[kWarp];
  const float unit = loss::RowSums<kPlain>::unit(args);
  for (int64_t index = blockIdx.x; index < args.rows; index += gridDim.x) {
    const T* row = logits + index * args.stride;
    T* out = dlogits + index * args.out_stride;
    const Cut<T> cut(row, args.classes, packed);
    const int64_t target = loss::target_of(args, index, threadIdx.x == 0);
    if (target < 0) {
      if (dlogits != nullptr) write_zeros(out, cut);
      continue;
    }
    float lse = 0.0F;
    if (args.losses != nullptr) {
      const float u_of_target = loss::transformed(args, to_float(row[target]), target);
      const loss::RowSums<kPlain> sums = sum_row<kPlain>(args, row, cut, unit, scratch);
      lse = sums.lse(args, unit);
      if (threadIdx.x == 0) loss::put_loss(args, index, sums, lse, u_of_target);
    } else {
      lse = args.lse[index];
    }
    if (dlogits == nullptr) continue;
    write_gradient(args, row, out, cut, loss::RowGradient<kPlain, T>(args, index, target, lse));
  }
}

/// Number of targets that are not ignored, returned in every thread. For a grid of one block.
__device__ int64_t count_targets(const int64_t* targets, int64_t rows, int64_t classes, int64_t ignore_index) {
  __shared__ int total;
  int mine = 0;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
    const int64_t target = targets[i];
    if (target != ignore_index && target >= 0 && target < classes) ++mine;
  }
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  atomicAdd(&total, mine);  // integer sums do not depend on the order of the atomics
  __syncthreads();
  return total;
}

__global__ void __launch_bounds__(kCountThreads)
    share_kernel(const int64_t* targets, int64_t rows, int64_t classes, int64_t ignore_index, bool mean, float* share) {
  const int64_t count = count_targets(targets, rows, classes, ignore_index);
  if (threadIdx.x == 0) *share = !mean ? 1.0F : count == 0 ? 0.0F : 1.0F / static_cast<float>(count);
}

__global__ void __launch_bounds__(kCountThreads)
    loss_kernel(const float* losses, const int64_t* targets, int64_t rows, int64_t classes, int64_t ignore_index,
                bool mean, float* loss) {
  __shared__ double sums[kCountThreads];
  double mine = 0.0;
  for (int64_t i = threadIdx.x; i < rows; i += kCountThreads) mine += static_cast<double>(losses[i]);
  sums[threadIdx.x] = mine;
  const int64_t count = count_targets(targets, rows, classes, ignore_index);  // its barriers publish the sums
  for (int half = kCountThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  *loss = count == 0 ? 0.0F : static_cast<float>(mean ? sums[0] / static_cast<double>(count) : sums[0]);
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    scale_kernel(T* values, const float* factor_in, int64_t n, int64_t packs) {
  constexpr int kSize = Pack<T>::kSize;
  const float factor = *factor_in;
  if (factor == 1.0F) return;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kElementThreads;
  for (int64_t p = thread; p < packs; p += step) {
    Pack<T> pack = load_pack(values + p * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) pack.values[j] = from_float<T>(to_float(pack.values[j]) * factor);
    store_pack(values + p * kSize, pack);
  }
  for (int64_t i = packs * kSize + thread; i < n; i += step) values[i] = from_float<T>(to_float(values[i]) * factor);
}

Rows rows_of(const CrossEntropyRows& args) {
  const CrossEntropyOptions& options = args.options;
  Rows rows{};
  rows.targets = args.targets.data<int64_t>();
  rows.bias = device_data<float>(args.bias);
  rows.share = device_data<float>(args.share);
  rows.grad = device_data<float>(args.grad);
  rows.losses = device_data<float>(args.losses);
  rows.lse = device_data<float>(args.lse);
  rows.rows = args.logits.dim(0);
  rows.classes = args.logits.dim(1);
  rows.stride = args.logits.strides()[0];
  rows.out_stride = args.dlogits.defined() ? args.dlogits.strides()[0] : 0;
  rows.ignore_index = options.ignore_index;
  rows.smoothing = static_cast<float>(options.label_smoothing);
  rows.z_loss = static_cast<float>(options.z_loss);
  rows.cap = static_cast<float>(options.soft_cap);
  rows.scale = static_cast<float>(options.logit_scale);
  rows.grad_per_row = options.reduction == Reduction::none;
  rows.faults = fault_slot(args.logits.device());
  return rows;
}

template <class E>
void launch_rows(const CrossEntropyRows& args, const Rows& rows) {
  using T = DeviceType<E>;
  const Device& device = args.logits.device();
  const T* logits = device_data<E>(args.logits);
  T* dlogits = device_data<E>(args.dlogits);
  if (loss::run_on_chip_rows(device, logits, dlogits, rows)) return;
  const uintptr_t past = reinterpret_cast<uintptr_t>(logits) / sizeof(T) % Pack<T>::kSize;
  const uintptr_t out_past = reinterpret_cast<uintptr_t>(dlogits) / sizeof(T) % Pack<T>::kSize;
  const bool in_step = (rows.stride - rows.out_stride) % Pack<T>::kSize == 0;
  const bool packed = dlogits == nullptr || (past == out_past && in_step);
  const auto kernel = rows.plain() ? row_per_block<T, true> : row_per_block<T, false>;
  const int threads = rows.classes > 4096 ? kRowThreads : 128;
  kernel<<<blocks_for(rows.rows, 1), threads, 0, stream_of(device)>>>(logits, dlogits, rows, packed);
  check_launch("cross_entropy");
}

}  // namespace

void cross_entropy_rows(const CrossEntropyRows& args) {
  const Rows rows = rows_of(args);
  if (rows.rows == 0) return;
  visit_floating("cross_entropy", args.logits.dtype(),
                 [&](auto tag) { launch_rows<typename decltype(tag)::type>(args, rows); });
}

void target_share(const Tensor& targets, int64_t classes, const CrossEntropyOptions& options, const Tensor& share) {
  share_kernel<<<1, kCountThreads, 0, stream_of(share.device())>>>(
      targets.data<int64_t>(), targets.numel(), classes, options.ignore_index, options.reduction == Reduction::mean,
      share.data<float>());
  check_launch("cross_entropy");
}

void add_losses(const Tensor& losses, const Tensor& targets, int64_t classes, const CrossEntropyOptions& options,
                const Tensor& loss) {
  loss_kernel<<<1, kCountThreads, 0, stream_of(loss.device())>>>(
      losses.data<float>(), targets.data<int64_t>(), targets.numel(), classes, options.ignore_index,
      options.reduction == Reduction::mean, loss.data<float>());
  check_launch("cross_entropy");
}

void cross_entropy_forward(const CrossEntropyForward& args) {
  CrossEntropyRows rows;
  rows.logits = args.logits;
  rows.targets = args.targets;
  rows.options = args.options;
  rows.losses = args.losses;
  rows.lse = args.lse;
  cross_entropy_rows(rows);
  if (args.loss.defined()) add_losses(args.losses, args.targets, args.logits.dim(1), args.options, args.loss);
}

void cross_entropy_backward(const CrossEntropyBackward& args) {
  CrossEntropyRows rows;
  rows.logits = args.logits;
  rows.targets = args.targets;
  rows.options = args.options;
  rows.lse = args.lse;
  rows.grad = args.grad;
  rows.dlogits = args.dlogits;
  rows.share = Tensor::empty(Shape{1}, DType::f32, args.logits.device());
  target_share(args.targets, args.logits.dim(1), args.options, rows.share);
  cross_entropy_rows(rows);
}

void scale_by_tensor(const ScaleByTensor& args) {
  const int64_t n = args.values.numel();
  if (n == 0) return;
  visit_floating("scale_by_tensor", args.values.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    T* values = device_data<E>(args.values);
    const int64_t packs = whole_packs<T>(n, values);
    const int blocks = element_blocks(n, packs, kElementThreads);
    scale_kernel<<<blocks, kElementThreads, 0, stream_of(args.values.device())>>>(values, args.factor.data<float>(), n,
                                                                                  packs);
    check_launch("scale_by_tensor");
  });
}

}  // namespace lamina::ops::cuda
