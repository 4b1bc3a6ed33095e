// Each warp sums the probabilities (balance loss) or the squared log-sum-exp (z-loss) of its tokens. A block adds its
// warps' sums in order, and one block adds the blocks' sums in f64.
#include "lamina/ops/moe/expert_indices.h"
#include "lamina/ops/moe/router_loss_kernel.h"
#include "lamina/ops/moe/router_rows.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::stream_of;

constexpr const char* kOp = "router_loss";
constexpr int kFinish = 256;

/// Writes the sums of each block: parts is [blocks, experts] for the balance loss, else [blocks].
template <class T>
__global__ void sums_kernel(const T* logits, int64_t tokens, int64_t experts, bool balance, double* parts) {
  extern __shared__ float memory[];  // per warp: one row of scores and the warp's sums
  __shared__ double squares[8];
  float* row = memory + warp_of() * 2 * experts;
  float* sums = row + experts;
  const int warps = blockDim.x / kWarp;
  for (int64_t e = lane_of(); e < experts; e += kWarp) sums[e] = 0;
  double square = 0;
  for (int64_t token = blockIdx.x * int64_t{warps} + warp_of(); token < tokens; token += int64_t{gridDim.x} * warps) {
    load_row(logits + token * experts, experts, row);
    const double lse = static_cast<double>(softmax_in_place(row, experts));
    square += lse * lse;
    for (int64_t e = lane_of(); e < experts; e += kWarp) sums[e] += row[e];
  }
  if (lane_of() == 0) squares[warp_of()] = square;
  __syncthreads();
  if (!balance) {
    if (threadIdx.x != 0) return;
    double total = 0;
    for (int warp = 0; warp < warps; ++warp) total += squares[warp];
    parts[blockIdx.x] = total;
    return;
  }
  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
    double total = 0;
    for (int warp = 0; warp < warps; ++warp) total += static_cast<double>(memory[(warp * 2 + 1) * experts + e]);
    parts[blockIdx.x * experts + e] = total;
  }
}

__global__ void __launch_bounds__(kFinish)
    finish_kernel(const double* parts, int64_t blocks, int64_t tokens, int64_t experts, const int64_t* counts,
                  int64_t choices, float* shares, float* loss) {
  __shared__ double sums[kFinish];
  const bool balance = counts != nullptr;
  double mine = 0;
  for (int64_t e = threadIdx.x; e < (balance ? experts : 1); e += kFinish) {
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block) sum += parts[balance ? block * experts + e : block];
    if (balance) {
      const float share = static_cast<float>(counts[e]) / static_cast<float>(choices);
      shares[e] = share;
      sum *= static_cast<double>(share) * static_cast<double>(experts);
    }
    mine += sum / static_cast<double>(tokens);
  }
  sums[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
  for (int i = 0; i < kFinish; ++i) total += sums[i];
  *loss = static_cast<float>(total);
}

template <class T>
__global__ void backward_kernel(const T* logits, const float* shares, const float* dloss, int64_t tokens,
                                int64_t experts, T* dlogits) {
  extern __shared__ float memory[];
  const int64_t token = blockIdx.x * int64_t{blockDim.x / kWarp} + warp_of();
  if (token >= tokens) return;
  float* row = memory + warp_of() * experts;
  const float factor = *dloss / static_cast<float>(tokens) * (shares != nullptr ? static_cast<float>(experts) : 2.0F);
  load_row(logits + token * experts, experts, row);
  float shift = softmax_in_place(row, experts);
  if (shares != nullptr) {
    float dot = 0;
    for (int64_t e = lane_of(); e < experts; e += kWarp) dot = fmaf(row[e], shares[e], dot);
    shift = -lamina::cuda::warp_sum(dot);
  }
  for (int64_t e = lane_of(); e < experts; e += kWarp) {
    const float pull = shares != nullptr ? shares[e] + shift : shift;
    dlogits[token * experts + e] = from_float<T>(row[e] * factor * pull);
  }
}

}  // namespace

void router_loss_forward(const RouterLossForward& args) {
  const int64_t tokens = args.logits.dim(0);
  const int64_t experts = args.logits.dim(1);
  const bool balance = args.indices.defined();
  const Device& device = args.logits.device();
  const cudaStream_t stream = stream_of(device);
  if (tokens == 0) {
    LAMINA_CUDA(cudaMemsetAsync(args.loss.raw(), 0, sizeof(float), stream), kOp);
    return;
  }
  const RouterBlock block(kOp, experts, 2 * experts);
  const int blocks = std::min(block.blocks(tokens), 2 * lamina::cuda::sm_count(device));
  const Tensor parts = Tensor::empty({blocks, balance ? experts : 1}, DType::f64, device);
  Tensor counts;
  if (balance) {
    counts = Tensor::empty({experts}, DType::i64, device);
    count_experts(kOp, args.indices, counts);
  }
  lamina::cuda::visit_floating(kOp, args.logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    sums_kernel<DeviceType<T>><<<blocks, block.threads(), block.bytes, stream>>>(
        device_data<T>(args.logits), tokens, experts, balance, parts.data<double>());
    check_launch(kOp);
  });
  finish_kernel<<<1, kFinish, 0, stream>>>(
      parts.data<double>(), blocks, tokens, experts, balance ? counts.data<int64_t>() : nullptr,
      balance ? args.indices.numel() : 0, device_data<float>(args.shares), args.loss.data<float>());
  check_launch(kOp);
}

void router_loss_backward(const RouterLossBackward& args) {
  const int64_t tokens = args.logits.dim(0);
  const int64_t experts = args.logits.dim(1);
  if (tokens == 0) return;
  const RouterBlock block(kOp, experts, experts);
  lamina::cuda::visit_floating(kOp, args.logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    backward_kernel<DeviceType<T>>
        <<<block.blocks(tokens), block.threads(), block.bytes, stream_of(args.logits.device())>>>(
            device_data<T>(args.logits), device_data<float>(args.shares), args.dloss.data<float>(), tokens, experts,
            device_data<T>(args.dlogits));
    check_launch(kOp);
  });
}

}  // namespace lamina::ops::cuda
