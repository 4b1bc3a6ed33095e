// Memory-bound: four tensors are read and three or four (with a master copy) are written, once each. Many slots share a
// launch, see slots.cuh; a block updates 2048 elements of one slot.
#include <cmath>

#include "lamina/ops/optim/adamw_kernel.h"
#include "lamina/ops/optim/slots.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kChunk = kSlotThreads * kSlotWidth * 2;

struct Entry {
  void* param;
  const void* grad;
  float* master;  ///< optional
  float* m;
  float* v;
  int64_t n;
  float lr, weight_decay;  ///< used with dynamics, instead of the next three fields
  float decay;             ///< 1 − lr · weight_decay
  float root;              ///< 1 / sqrt(1 − beta2^step)
  float minus_step;        ///< −lr / (1 − beta1^step)
  DType param_type, grad_type;
  bool packed;
};

struct Scalars {
  float lerp;  ///< m ← base + lerp · (g − m), where base is m or g, whichever has the larger weight
  bool from_m;
  float beta2, rest2, eps;
  const float* dynamics;  ///< optional
};

/// The scalars of one slot in this step, after applying `dynamics`.
struct Step {
  float decay, minus_step, root, clip;
};

__device__ inline Step step_of(const Entry& entry, const Scalars& scalars) {
  if (scalars.dynamics == nullptr) return {entry.decay, entry.minus_step, entry.root, 1.0F};
  const float lr = entry.lr * scalars.dynamics[0];
  return {1.0F - lr * entry.weight_decay, -lr * scalars.dynamics[1], scalars.dynamics[2], scalars.dynamics[3]};
}

template <int kWidth>
__device__ inline void update(const Entry& entry, const Scalars& scalars, const Step& step, int64_t i) {
  float g[kWidth];
  float m[kWidth];
  float v[kWidth];
  float w[kWidth];
  load_as(entry.grad, entry.grad_type, i, g);
  load_as(entry.m, DType::f32, i, m);
  load_as(entry.v, DType::f32, i, v);
  if (entry.master != nullptr) {
    load_as(entry.master, DType::f32, i, w);
  } else {
    load_as(entry.param, entry.param_type, i, w);
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const float grad = g[j] * step.clip;
    m[j] = fmaf(scalars.lerp, grad - m[j], scalars.from_m ? m[j] : grad);
    v[j] = fmaf(scalars.rest2 * grad, grad, v[j] * scalars.beta2);
    const float denominator = fmaf(sqrtf(v[j]), step.root, scalars.eps);
    w[j] = fmaf(w[j], step.decay, step.minus_step * m[j] / denominator);
  }
  store_as(m, entry.m, DType::f32, i);
  store_as(v, entry.v, DType::f32, i);
  if (entry.master != nullptr) store_as(w, entry.master, DType::f32, i);
  store_as(w, entry.param, entry.param_type, i);
}

__global__ void __launch_bounds__(kSlotThreads)
    adamw_kernel(const __grid_constant__ Batch<Entry> batch, const __grid_constant__ Scalars scalars) {
  const int index = entry_of(batch);
  const Entry& entry = batch.entries[index];
  const Step step = step_of(entry, scalars);
  if (step.clip < 0.0F) return;
  for_each_in_chunk(
      entry, blockIdx.x - batch.starts[index], kChunk, [&](int64_t i) { update<kSlotWidth>(entry, scalars, step, i); },
      [&](int64_t i) { update<1>(entry, scalars, step, i); });
}

/// The scalars are computed in f64 and rounded, as on the CPU.
Entry entry_for(const AdamWSlot& slot, const AdamWOptions& options) {
  const auto steps = static_cast<double>(slot.step);
  Entry entry{};
  entry.param = slot.param.raw();
  entry.grad = slot.grad.raw();
  entry.master = device_data<float>(slot.master);
  entry.m = slot.m.data<float>();
  entry.v = slot.v.data<float>();
  entry.n = slot.param.numel();
  entry.lr = static_cast<float>(slot.lr);
  entry.weight_decay = static_cast<float>(slot.weight_decay);
  entry.decay = static_cast<float>(1.0 - slot.lr * slot.weight_decay);
  entry.root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, steps)));
  entry.minus_step = static_cast<float>(-slot.lr / (1.0 - std::pow(options.beta1, steps)));
  entry.param_type = slot.param.dtype();
  entry.grad_type = slot.grad.dtype();
  entry.packed = is_packed({entry.param, entry.grad, entry.master, entry.m, entry.v});
  return entry;
}

}  // namespace

void adamw_update(const std::vector<AdamWSlot>& slots, const AdamWOptions& options) {
  const Device& device = slots[0].param.device();
  const float weight = static_cast<float>(1.0 - options.beta1);
  Scalars scalars{};
  scalars.from_m = weight < 0.5F;
  scalars.lerp = scalars.from_m ? weight : weight - 1.0F;
  scalars.beta2 = static_cast<float>(options.beta2);
  scalars.rest2 = static_cast<float>(1.0 - options.beta2);
  scalars.eps = static_cast<float>(options.eps);
  scalars.dynamics = device_data<float>(options.dynamics);
  std::vector<Entry> entries;
  for (const AdamWSlot& slot : slots) {
    check_slot_type("adamw", slot.param.dtype());
    entries.push_back(entry_for(slot, options));
  }
  each_batch(entries, kChunk, [&](const Batch<Entry>& batch, int64_t /*before*/) {
    adamw_kernel<<<batch.starts[batch.count], kSlotThreads, 0, stream_of(device)>>>(batch, scalars);
    check_launch("adamw");
  });
}

}  // namespace lamina::ops::cuda
