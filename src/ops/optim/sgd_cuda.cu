// One memory-bound pass over the elements, as in adamw_cuda.cu, with one state tensor (momentum) or none.
#include "lamina/ops/optim/sgd_kernel.h"
#include "lamina/ops/optim/slots.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kChunk = kSlotThreads * kSlotWidth * 2;

struct Entry {
  void* param;
  const void* grad;
  float* master;    ///< optional
  float* momentum;  ///< optional
  int64_t n;
  float minus_lr, weight_decay;
  DType param_type, grad_type;
  bool packed;
};

template <int kWidth>
__device__ inline void update(const Entry& entry, float momentum, bool nesterov, int64_t i) {
  float g[kWidth];
  float b[kWidth];
  float w[kWidth];
  load_as(entry.grad, entry.grad_type, i, g);
  if (entry.momentum != nullptr) load_as(entry.momentum, DType::f32, i, b);
  if (entry.master != nullptr) {
    load_as(entry.master, DType::f32, i, w);
  } else {
    load_as(entry.param, entry.param_type, i, w);
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    float step = fmaf(entry.weight_decay, w[j], g[j]);
    if (entry.momentum != nullptr) {
      b[j] = fmaf(momentum, b[j], step);
      step = nesterov ? fmaf(momentum, b[j], step) : b[j];
    }
    w[j] = fmaf(entry.minus_lr, step, w[j]);
  }
  if (entry.momentum != nullptr) store_as(b, entry.momentum, DType::f32, i);
  if (entry.master != nullptr) store_as(w, entry.master, DType::f32, i);
  store_as(w, entry.param, entry.param_type, i);
}

__global__ void __launch_bounds__(kSlotThreads)
    sgd_kernel(const __grid_constant__ Batch<Entry> batch, float momentum, bool nesterov) {
  const int index = entry_of(batch);
  const Entry& entry = batch.entries[index];
  for_each_in_chunk(
      entry, blockIdx.x - batch.starts[index], kChunk,
      [&](int64_t i) { update<kSlotWidth>(entry, momentum, nesterov, i); },
      [&](int64_t i) { update<1>(entry, momentum, nesterov, i); });
}

}  // namespace

void sgd_update(const std::vector<SgdSlot>& slots, const SgdOptions& options) {
  const Device& device = slots[0].param.device();
  std::vector<Entry> entries;
  for (const SgdSlot& slot : slots) {
    check_slot_type("sgd", slot.param.dtype());
    Entry entry{};
    entry.param = slot.param.raw();
    entry.grad = slot.grad.raw();
    entry.master = device_data<float>(slot.master);
    entry.momentum = options.momentum > 0 ? slot.momentum.data<float>() : nullptr;
    entry.n = slot.param.numel();
    entry.minus_lr = static_cast<float>(-slot.lr);
    entry.weight_decay = static_cast<float>(slot.weight_decay);
    entry.param_type = slot.param.dtype();
    entry.grad_type = slot.grad.dtype();
    entry.packed = is_packed({entry.param, entry.grad, entry.master, entry.momentum});
    entries.push_back(entry);
  }
  each_batch(entries, kChunk, [&](const Batch<Entry>& batch, int64_t /*before*/) {
    sgd_kernel<<<batch.starts[batch.count], kSlotThreads, 0, stream_of(device)>>>(
        batch, static_cast<float>(options.momentum), options.nesterov);
    check_launch("sgd");
  });
}

}  // namespace lamina::ops::cuda
