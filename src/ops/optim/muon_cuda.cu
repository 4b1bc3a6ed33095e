// The element-wise parts of a Muon step, one pass each, and the GEMMs of the Newton–Schulz iteration in f32. The norm
// stays on the device. If it is not finite, a Fault is reported and the update becomes zero: the parameter keeps its
// value until the next synchronization throws.
#include <algorithm>
#include <utility>

#include "lamina/ops/linear/gemm/gemm_cuda.h"
#include "lamina/ops/optim/muon_kernel.h"
#include "lamina/ops/optim/slots.cuh"
#include "lamina/ops/optim/squares.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

__device__ inline int64_t first_element() { return static_cast<int64_t>(blockIdx.x) * kSlotThreads + threadIdx.x; }
__device__ inline int64_t all_threads() { return static_cast<int64_t>(gridDim.x) * kSlotThreads; }

__global__ void __launch_bounds__(kSlotThreads)
    momentum_kernel(const void* grad, DType grad_type, float* momentum, float* update, int64_t n, float keep,
                    float take, bool nesterov) {
  for (int64_t i = first_element(); i < n; i += all_threads()) {
    float g[1];
    load_as(grad, grad_type, i, g);
    const float b = fmaf(take, g[0] - momentum[i], momentum[i]);
    momentum[i] = b;
    update[i] = nesterov ? fmaf(keep, b - g[0], g[0]) : b;
  }
}

/// update ← update / max(norm, eps); unchanged if the norm is 0.
__global__ void __launch_bounds__(kSlotThreads)
    normalize_kernel(float* update, int64_t n, const double* squares, double eps, FaultSlot* faults) {
  const double norm = sqrt(*squares);
  const float factor = norm == 0.0 ? 1.0F : static_cast<float>(1.0 / fmax(norm, eps));
  if (!isfinite(norm) && blockIdx.x == 0 && threadIdx.x == 0) report(faults, Fault::not_finite, 0);
  for (int64_t i = first_element(); i < n; i += all_threads()) update[i] = isfinite(norm) ? update[i] * factor : 0.0F;
}

/// poly ← poly + cubic · square + linear · I, both [size, size].
__global__ void __launch_bounds__(kSlotThreads)
    polynomial_kernel(const float* square, float* poly, int64_t size, float cubic, float linear) {
  for (int64_t i = first_element(); i < size * size; i += all_threads()) {
    const float value = fmaf(cubic, square[i], poly[i]);
    poly[i] = i % (size + 1) == 0 ? value + linear : value;
  }
}

__global__ void __launch_bounds__(kSlotThreads)
    apply_kernel(void* param, DType param_type, float* master, const float* update, int64_t n, float decay,
                 float minus_lr) {
  for (int64_t i = first_element(); i < n; i += all_threads()) {
    float w[1];
    if (master != nullptr) {
      w[0] = master[i];
    } else {
      load_as(param, param_type, i, w);
    }
    w[0] = fmaf(minus_lr, update[i], w[0] * decay);
    if (master != nullptr) master[i] = w[0];
    store_as(w, param, param_type, i);
  }
}

Product dense(int64_t m, int64_t n, int64_t k, const Tensor& a, const Tensor& b, const Tensor& c) {
  Product product{};
  product.m = m;
  product.n = n;
  product.k = k;
  product.type = product.c_type = DType::f32;
  product.a = a.raw();
  product.lda = a.dim(1);
  product.b = b.raw();
  product.ldb = b.dim(1);
  product.c = c.raw();
  product.ldc = c.dim(1);
  return product;
}

/// Newton–Schulz iterations. As on the CPU, A is the smaller of X·Xᵀ and Xᵀ·X, and a·X + (b·A + c·A²)·X is one GEMM
/// with a added to the diagonal of the polynomial.
void newton_schulz(Tensor& x, int steps) {
  const Device device = x.device();
  const int64_t rows = x.dim(0);
  const int64_t cols = x.dim(1);
  const bool tall = rows > cols;
  const int64_t size = std::min(rows, cols);
  const Tensor square = Tensor::empty(Shape{size, size}, DType::f32, device);
  const Tensor poly = Tensor::empty(Shape{size, size}, DType::f32, device);
  Tensor next = Tensor::empty(x.shape(), DType::f32, device);
  Product inner = dense(size, size, size, square, square, poly);
  inner.alpha = static_cast<float>(NewtonSchulz::kQuintic);
  for (int step = 0; step < steps; ++step) {
    Product outer = dense(size, size, std::max(rows, cols), x, x, square);
    outer.transpose_a = tall;
    outer.transpose_b = !tall;
    product(device, outer);
    product(device, inner);
    polynomial_kernel<<<blocks_for(size * size, kSlotThreads), kSlotThreads, 0, stream_of(device)>>>(
        square.data<float>(), poly.data<float>(), size, static_cast<float>(NewtonSchulz::kCubic),
        static_cast<float>(NewtonSchulz::kLinear));
    check_launch("muon");
    product(device, dense(rows, cols, size, tall ? x : poly, tall ? poly : x, next));
    std::swap(x, next);
  }
}

}  // namespace

void muon_momentum(const MuonMatrix& args) {
  check_slot_type("muon", args.slot.param.dtype());
  const int64_t n = args.update.numel();
  momentum_kernel<<<blocks_for(n, kSlotThreads), kSlotThreads, 0, stream_of(args.update.device())>>>(
      args.slot.grad.raw(), args.slot.grad.dtype(), args.slot.momentum.data<float>(), args.update.data<float>(), n,
      static_cast<float>(args.options.momentum), static_cast<float>(1.0 - args.options.momentum),
      args.options.nesterov);
  check_launch("muon");
}

void muon_orthogonalize(const MuonMatrix& args) {
  Tensor target = args.update;
  const Device& device = target.device();
  const Tensor squares = sum_of_squares("muon", {target});
  const int64_t n = target.numel();
  normalize_kernel<<<blocks_for(n, kSlotThreads), kSlotThreads, 0, stream_of(device)>>>(
      target.data<float>(), n, squares.data<double>(), args.options.eps, fault_slot(device));
  check_launch("muon");
  Tensor x = target;
  newton_schulz(x, args.options.steps);
  if (!x.shares_memory_with(target)) target.copy_(x);
}

void muon_apply(const MuonMatrix& args, double scaled_lr) {
  const MuonSlot& slot = args.slot;
  const int64_t n = args.update.numel();
  apply_kernel<<<blocks_for(n, kSlotThreads), kSlotThreads, 0, stream_of(args.update.device())>>>(
      slot.param.raw(), slot.param.dtype(), device_data<float>(slot.master), args.update.data<float>(), n,
      static_cast<float>(1.0 - slot.lr * slot.weight_decay), static_cast<float>(-scaled_lr));
  check_launch("muon");
}

}  // namespace lamina::ops::cuda
