// A block takes one row of logits. The first pass reads it in packs, each thread with a maximum and a sum of
// exponentials of its own that are rescaled only when a pack raises the maximum; the packs are kept in shared memory
// where the row fits, so that the second pass, which turns logits into gradients, does not read memory again: one read
// and one write in all. Two blocks of 512 threads share a multiprocessor for a vocabulary of 50,000 in bf16, one
// reading while the other writes. Rows may begin at odd addresses (a vocabulary of 50,257): elements before the first
// and behind the last whole pack are taken singly.
#include "lamina/ops/elementwise/elements.cuh"
#include "lamina/ops/loss/cross_entropy_row.cuh"
#include "lamina/ops/loss/online_sum.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: what kernels share

constexpr int kMostThreads = 1024;
constexpr int kCountThreads = 1024;
constexpr int kAtOnce = 4;  // packs of a thread under way

struct Rows {
  const int64_t* targets;
  const float* bias;
  const float* share;
  const float* grad;
  float* losses;
  float* lse;
  int64_t rows, classes;
  int64_t stride, out_stride;  ///< from row to row of logits and dlogits
  int64_t ignore_index;
  float smoothing, z_loss, cap, scale;
  bool grad_per_row;
  bool packed;  ///< whole packs of logits are whole packs of dlogits too
  bool staged;  ///< the row's whole packs are kept in shared memory
  FaultSlot* faults;
};

/// u = soft_cap(scale · (logit + bias)); kPlain: neither bias nor cap.
template <bool kPlain>
__device__ inline float transformed(const Rows& args, float logit, int64_t i) {
  if constexpr (kPlain) return logit * args.scale;
  if (args.bias != nullptr) logit += args.bias[i];
  const float u = logit * args.scale;
  return args.cap == 0.0F ? u : args.cap * tanhf(u / args.cap);
}

/// A row cut into single elements, whole packs and single elements again.
template <class T>
struct Cut {
  int64_t head, packs, n;
  __device__ Cut(const T* row, int64_t count, bool packed) : n(count) {
    constexpr int kSize = Pack<T>::kSize;
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
    head = packed ? min((kSize - past) % kSize, count) : count;
    packs = (count - head) / kSize;
  }
  /// one(i) for every single element of this thread.
  template <class F>
  __device__ void singles(const F& one) const {
    const int64_t tail = head + packs * Pack<T>::kSize;
    for (int64_t i = threadIdx.x; i < head; i += blockDim.x) one(i);
    for (int64_t i = tail + threadIdx.x; i < n; i += blockDim.x) one(i);
  }
};

/// What the first pass finds, the same in every thread.
struct RowSums {
  float lse, total, at_target;
};

template <bool kPlain, class T>
__device__ RowSums sum_row(const Rows& args, const T* row, const Cut<T>& cut, int64_t target, Pack<T>* staged,
                           float* scratch) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float found;
  OnlineSum mine;
  float total = 0.0F;
  const auto note = [&](int64_t i, float u) {
    total += u;
    if (i == target) found = u;
  };
  cut.singles([&](int64_t i) {
    const float u = transformed<kPlain>(args, to_float(row[i]), i);
    mine.add(u);
    note(i, u);
  });
  const auto take = [&](const Pack<T>& pack, int64_t first) {
    float u[kSize];
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      u[j] = transformed<kPlain>(args, to_float(pack.values[j]), first + j);
      most = fmaxf(most, u[j]);
    }
    mine.raise(most);
    const float away = mine.most == -INFINITY ? 0.0F : mine.most;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      mine.sum += expf(u[j] - away);
      note(first + j, u[j]);
    }
  };
  for (int64_t base = threadIdx.x; base < cut.packs; base += kAtOnce * blockDim.x) {
    Pack<T> held[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t p = base + k * blockDim.x;
      if (p < cut.packs) held[k] = load_pack(row + cut.head + p * kSize);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t p = base + k * blockDim.x;
      if (p >= cut.packs) break;
      if (args.staged) staged[p] = held[k];
      take(held[k], cut.head + p * kSize);
    }
  }
  const float most = block_max(mine.most, scratch);
  const float at_target = found;  // between two barriers: written before, not again until all have read it
  const float sum = block_sum(mine.sum_for(most), scratch);
  RowSums sums{most + logf(sum), 0.0F, at_target};
  if (args.smoothing != 0.0F) sums.total = block_sum(total, scratch);
  return sums;
}

/// As many elements of Out as a pack of In has.
template <class In, class Out>
using Turned = Stretch<Out, Pack<In>::kSize>;

template <bool kPlain, class In, class Out>
__device__ void write_gradient(const Rows& args, const In* row, Out* out, const Cut<In>& cut, int64_t index,
                               int64_t target, float lse, const Pack<In>* staged) {
  constexpr int kSize = Pack<In>::kSize;
  float weight = args.scale;
  if (args.share != nullptr) weight *= *args.share;
  if (args.grad != nullptr) weight *= args.grad[args.grad_per_row ? index : 0];
  const float even = args.smoothing / static_cast<float>(args.classes);
  const float rise = 1.0F + 2.0F * args.z_loss * lse;
  const float narrow = args.cap == 0.0F ? 0.0F : 1.0F / args.cap;
  const auto gradient = [&](In logit, int64_t i) {
    const float u = transformed<kPlain>(args, to_float(logit), i);
    float pull = fmaf(exp_for<Out>(u - lse), rise, -even);
    if (i == target) pull -= 1.0F - args.smoothing;
    pull *= weight;
    if constexpr (!kPlain) pull *= fmaf(-u * narrow, u * narrow, 1.0F);
    return from_float<Out>(pull);
  };
  cut.singles([&](int64_t i) { out[i] = gradient(row[i], i); });
  for (int64_t base = threadIdx.x; base < cut.packs; base += kAtOnce * blockDim.x) {
    Pack<In> held[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t p = base + k * blockDim.x;
      if (p < cut.packs) held[k] = args.staged ? staged[p] : load_pack(row + cut.head + p * kSize);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t first = cut.head + (base + k * blockDim.x) * kSize;
      if (base + k * blockDim.x >= cut.packs) break;
      Turned<In, Out> turned;
#pragma unroll
      for (int j = 0; j < kSize; ++j) turned.values[j] = gradient(held[k].values[j], first + j);
      *reinterpret_cast<Turned<In, Out>*>(out + first) = turned;
    }
  }
}

template <class In, class Out>
__device__ void write_zeros(Out* out, const Cut<In>& cut) {
  cut.singles([&](int64_t i) { out[i] = from_float<Out>(0.0F); });
  Turned<In, Out> zeros;
  for (int j = 0; j < Pack<In>::kSize; ++j) zeros.values[j] = from_float<Out>(0.0F);
  for (int64_t p = threadIdx.x; p < cut.packs; p += blockDim.x) {
    *reinterpret_cast<Turned<In, Out>*>(out + cut.head + p * Pack<In>::kSize) = zeros;
  }
}

/// dlogits null: losses alone; losses null: lse is known. dlogits may be logits: a thread writes what it alone has
/// read.
template <class In, class Out, bool kPlain>
__global__ void __launch_bounds__(kMostThreads)
    row_kernel(const In* logits, Out* dlogits, const __grid_constant__ Rows args) {
  extern __shared__ uint4 room[];
  __shared__ float scratch[kWarp];
  auto* staged = reinterpret_cast<Pack<In>*>(room);
  for (int64_t index = blockIdx.x; index < args.rows; index += gridDim.x) {
    const In* row = logits + index * args.stride;
    Out* out = dlogits + index * args.out_stride;
    const Cut<In> cut(row, args.classes, args.packed);
    const int64_t target = args.targets[index];
    const bool counts = target != args.ignore_index && target >= 0 && target < args.classes;
    if (!counts) {
      if (threadIdx.x == 0) {
        if (target != args.ignore_index) report(args.faults, Fault::target, target);
        if (args.losses != nullptr) args.losses[index] = 0.0F;
        if (args.losses != nullptr && args.lse != nullptr) args.lse[index] = 0.0F;
      }
      if (dlogits != nullptr) write_zeros(out, cut);
      continue;
    }
    float lse = 0.0F;
    if (args.losses != nullptr) {
      const RowSums sums = sum_row<kPlain>(args, row, cut, target, staged, scratch);
      lse = sums.lse;
      if (threadIdx.x == 0) {
        float loss = lse - (1.0F - args.smoothing) * sums.at_target;
        if (args.smoothing != 0.0F) loss -= args.smoothing * sums.total / static_cast<float>(args.classes);
        args.losses[index] = loss + args.z_loss * lse * lse;
        if (args.lse != nullptr) args.lse[index] = lse;
      }
    } else {
      lse = args.lse[index];
    }
    if (dlogits != nullptr) write_gradient<kPlain>(args, row, out, cut, index, target, lse, staged);
  }
}

/// Targets that count, in every thread of the one block.
__device__ int64_t count_targets(const int64_t* targets, int64_t rows, int64_t classes, int64_t ignore_index) {
  __shared__ int total;
  int mine = 0;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
    const int64_t target = targets[i];
    if (target != ignore_index && target >= 0 && target < classes) ++mine;
  }
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  atomicAdd(&total, mine);  // of whole numbers: the order does not matter
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
  const int64_t count = count_targets(targets, rows, classes, ignore_index);  // its barriers make the sums known
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

/// Bytes of shared memory that one block may have, less what kernels declare themselves.
int most_shared(const Device& device) {
  int bytes = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), "cross_entropy");
  return bytes - 1024;
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

/// Logits of E, gradients of D.
template <class E, class D>
void launch_rows(const CrossEntropyRows& args, Rows rows) {
  using In = typename DeviceTypeOf<E>::type;
  using Out = typename DeviceTypeOf<D>::type;
  const Device& device = args.logits.device();
  const auto* logits = reinterpret_cast<const In*>(args.logits.data<E>());
  Out* dlogits = args.dlogits.defined() ? reinterpret_cast<Out*>(args.dlogits.data<D>()) : nullptr;
  const int64_t bytes = rows.classes * static_cast<int64_t>(sizeof(In));
  const int most = most_shared(device);
  rows.staged = rows.losses != nullptr && dlogits != nullptr && bytes <= most;
  const uintptr_t past = reinterpret_cast<uintptr_t>(logits) / sizeof(In) % Pack<In>::kSize;
  const uintptr_t out_past = reinterpret_cast<uintptr_t>(dlogits) / sizeof(Out) % Pack<In>::kSize;
  const bool in_step = (rows.stride - rows.out_stride) % Pack<In>::kSize == 0;
  rows.packed = dlogits == nullptr || (past == out_past && in_step);
  const int64_t shared = rows.staged ? bytes / 16 * 16 : 0;
  const bool alone = 2 * shared > most;  // on its multiprocessor
  const int threads = alone ? kMostThreads : rows.classes > 4096 ? 512 : 128;
  void (*kernel)(const In*, Out*, Rows) = row_kernel<In, Out, false>;
  if (rows.bias == nullptr && rows.cap == 0.0F) kernel = row_kernel<In, Out, true>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most), "cross_entropy");
  const auto size = static_cast<size_t>(shared);
  kernel<<<blocks_for(rows.rows, 1), threads, size, stream_of(device)>>>(logits, dlogits, rows);
  check_launch("cross_entropy");
}

}  // namespace

void cross_entropy_rows(const CrossEntropyRows& args) {
  const Rows rows = rows_of(args);
  if (rows.rows == 0) return;
  const DType out = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  if (args.logits.dtype() == DType::f32 && out == DType::bf16) return launch_rows<float, bf16>(args, rows);
  if (args.logits.dtype() == DType::f32 && out == DType::f16) return launch_rows<float, f16>(args, rows);
  visit_floating("cross_entropy", args.logits.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    launch_rows<E, E>(args, rows);
  });
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
