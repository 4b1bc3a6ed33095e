// Cross entropy of rows whose classes are divided over ranks. First a block per row sums this rank's classes. Then the
// ranks exchange three numbers per row. A second kernel computes the loss and, in place, the gradients.
#include "lamina/comm/communicator.h"
#include "lamina/ops/loss/class_shard.cuh"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kThreads = 256;

struct ShardRows {
  const int64_t* targets;  // [rows]
  const float* bias;       // bias of this rank's classes, or null
  const float* share;
  const float* grad;  // gradient of the result, or null (1)
  float* losses;      // [rows]
  int64_t rows, classes, stride;
  int64_t first_class, all_classes;
  int64_t ignore_index;
  float smoothing, z_loss, cap, scale;
  int ranks;
  FaultSlot* faults;

  __device__ float transformed(float logit, int64_t i) const {
    if (bias != nullptr) logit += bias[i];
    const float u = logit * scale;
    return cap == 0.0F ? u : cap * tanhf(u / cap);
  }
};

/// Writes own [3, rows]: log Σ exp(u) over this rank's classes, Σ u, and u of the target (0 if another rank has it).
template <class T>
__global__ void __launch_bounds__(kThreads) shard_sums_kernel(ShardRows args, const T* logits, float* own) {
  __shared__ float scratch[32];
  const int64_t row = blockIdx.x;
  const T* from = logits + row * args.stride;
  float most = -INFINITY;
  for (int64_t i = threadIdx.x; i < args.classes; i += kThreads) {
    most = fmaxf(most, args.transformed(to_float(from[i]), i));
  }
  most = block_max(most, scratch);
  float sum = 0.0F;
  float total = 0.0F;
  for (int64_t i = threadIdx.x; i < args.classes; i += kThreads) {
    const float u = args.transformed(to_float(from[i]), i);
    sum += expf(u - most);
    total += u;
  }
  sum = block_sum(sum, scratch);
  total = block_sum(total, scratch);
  if (threadIdx.x != 0) return;
  const int64_t label = args.targets[row] - args.first_class;
  own[row] = most + logf(sum);
  own[args.rows + row] = total;
  own[2 * args.rows + row] = label >= 0 && label < args.classes ? args.transformed(to_float(from[label]), label) : 0.0F;
}

/// Computes losses and gradients from `all` [ranks, 3, rows], the sums of every rank. Every rank adds in rank order, so
/// all ranks get bit-identical losses.
template <class T>
__global__ void __launch_bounds__(kThreads)
    shard_rows_kernel(ShardRows args, const float* all, T* logits, bool gradients) {
  const int64_t row = blockIdx.x;
  const int64_t target = args.targets[row];
  const bool counted = target != args.ignore_index && target >= 0 && target < args.all_classes;
  if (threadIdx.x == 0 && !counted && target != args.ignore_index) report(args.faults, Fault::target, target);
  float most = -INFINITY;
  for (int r = 0; r < args.ranks; ++r) most = fmaxf(most, all[3 * r * args.rows + row]);
  float sum = 0.0F;
  float total = 0.0F;
  float at_target = 0.0F;
  for (int r = 0; r < args.ranks; ++r) {
    const float* of_rank = all + 3 * r * args.rows + row;
    sum += expf(of_rank[0] - most);
    total += of_rank[args.rows];
    at_target += of_rank[2 * args.rows];
  }
  const float lse = most + logf(sum);
  const float spread = args.smoothing / static_cast<float>(args.all_classes);
  if (threadIdx.x == 0) {
    const float loss = lse - (1.0F - args.smoothing) * at_target - spread * total + args.z_loss * lse * lse;
    args.losses[row] = counted ? loss : 0.0F;
  }
  if (!gradients) return;
  const float arriving = args.grad == nullptr ? 1.0F : *args.grad;
  const float factor = counted ? *args.share * arriving * args.scale : 0.0F;
  T* to = logits + row * args.stride;
  for (int64_t i = threadIdx.x; i < args.classes; i += kThreads) {
    const float u = args.transformed(to_float(to[i]), i);
    float slope = expf(u - lse) * (1.0F + 2.0F * args.z_loss * lse) - spread;
    if (i == target - args.first_class) slope -= 1.0F - args.smoothing;
    if (args.cap != 0.0F) slope *= 1.0F - u / args.cap * (u / args.cap);
    to[i] = from_float<T>(slope * factor);
  }
}

}  // namespace

void shard_rows(const LinearCrossEntropy& args, const Tensor& logits, int64_t first, const Tensor& share,
                bool gradients) {
  const CrossEntropyOptions& options = args.options;
  const int64_t rows = logits.dim(0);
  const Device& device = logits.device();
  const ShardRows work{args.targets.data<int64_t>() + first,
                       args.bias.defined() ? args.bias.data<float>() : nullptr,
                       share.data<float>(),
                       args.grad.defined() ? args.grad.data<float>() : nullptr,
                       args.losses.data<float>() + first,
                       rows,
                       logits.dim(1),
                       logits.strides()[0],
                       args.shard.first,
                       args.shard.classes,
                       options.ignore_index,
                       static_cast<float>(options.label_smoothing),
                       static_cast<float>(options.z_loss),
                       static_cast<float>(options.soft_cap),
                       static_cast<float>(options.logit_scale),
                       args.shard.ranks->size(),
                       fault_slot(device)};
  const Tensor own = Tensor::empty({3 * rows}, DType::f32, device);
  visit_floating("linear_cross_entropy", logits.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    shard_sums_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream_of(device)>>>(work, device_data<E>(logits),
                                                                                       own.data<float>());
    check_launch("linear_cross_entropy");
    const Tensor all = exchange_class_sums(args, own);
    shard_rows_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream_of(device)>>>(
        work, all.data<float>(), device_data<E>(logits), gradients);
    check_launch("linear_cross_entropy");
  });
}

}  // namespace lamina::ops::cuda
