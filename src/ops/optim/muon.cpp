#include "lamina/ops/optim/muon.h"

#include <cmath>

#include "lamina/ops/launch.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/optim/grad_norm.h"

namespace lamina::ops {
namespace {

double scale_of(const Tensor& param, MuonScale scale) {
  const auto rows = static_cast<double>(param.dim(0));
  const auto cols = static_cast<double>(param.dim(1));
  return scale == MuonScale::aspect ? std::sqrt(std::max(1.0, rows / cols)) : 0.2 * std::sqrt(std::max(rows, cols));
}

Work work_of(const Tensor& param, const MuonOptions& options) {
  const int64_t n = param.numel();
  const int64_t small = std::min(param.dim(0), param.dim(1));
  const int64_t products = options.steps * (4 * n * small + 2 * small * small * small);
  return {products + 10 * n, 4 * n * options.steps * 4};
}

/// Newton–Schulz on x [rows, cols]; A is the smaller of X·Xᵀ and Xᵀ·X. a·X + (b·A + c·A²)·X is computed as one product
/// with a added to the diagonal of the square, which saves a pass over X.
template <class T>
void newton_schulz(const Threads& threads, Tensor& x, int steps) {
  const int64_t rows = x.dim(0);
  const int64_t cols = x.dim(1);
  const bool tall = rows > cols;
  const int64_t n = std::min(rows, cols);
  const Tensor a = Tensor::empty({n, n}, x.dtype(), x.device());
  const Tensor b = Tensor::empty({n, n}, x.dtype(), x.device());
  Tensor next = Tensor::empty(x.shape(), x.dtype(), x.device());
  T* square = a.data<T>();
  T* poly = b.data<T>();
  Gemm<T> outer{.transpose_a = tall, .transpose_b = !tall, .m = n, .n = n, .k = std::max(rows, cols), .lda = cols};
  outer.ldb = cols;
  outer.c = square;
  outer.ldc = n;
  const Gemm<T> inner{.m = n,
                      .n = n,
                      .k = n,
                      .alpha = static_cast<T>(NewtonSchulz::kQuintic),
                      .a = square,
                      .lda = n,
                      .b = square,
                      .ldb = n,
                      .c = poly,
                      .ldc = n};
  Gemm<T> last{.m = rows, .n = cols, .k = n, .lda = tall ? cols : n, .ldb = tall ? n : cols, .ldc = cols};
  for (int step = 0; step < steps; ++step) {
    outer.a = outer.b = x.data<T>();
    gemm(threads, outer);
    gemm(threads, inner);
    threads.ranges(n, rows_per_range(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * n; i < end * n; ++i) poly[i] += static_cast<T>(NewtonSchulz::kCubic) * square[i];
      for (int64_t i = begin; i < end; ++i) poly[i * n + i] += static_cast<T>(NewtonSchulz::kLinear);
    });
    last.a = tall ? x.data<T>() : poly;
    last.b = tall ? poly : x.data<T>();
    last.c = next.data<T>();
    gemm(threads, last);
    std::swap(x, next);
  }
}

}  // namespace

namespace cpu {

void muon_orthogonalize(const MuonMatrix& args) {
  Tensor target = args.update;
  GradNorm size;
  sum_of_squares({target}, size);
  const double norm = size.norm;
  LAMINA_CHECK(std::isfinite(norm), "muon: the gradient or momentum of a parameter ", target.shape(),
               " is not finite; clip with error_if_nonfinite before the step, or skip it");
  scale_tensors({target}, norm == 0 ? 1.0 : 1.0 / std::max(norm, args.options.eps));
  Tensor x = target;
  const Threads& threads = target.device().threads();
  if (x.dtype() == DType::f64) {
    newton_schulz<double>(threads, x, args.options.steps);
  } else {
    newton_schulz<float>(threads, x, args.options.steps);
  }
  if (!x.shares_memory_with(target)) target.copy_(x);
}

}  // namespace cpu

void muon(std::vector<MuonSlot> slots, const MuonOptions& options) {
  check_fraction("muon", "momentum", options.momentum);
  check_not_negative("muon", "eps", options.eps);
  LAMINA_CHECK(options.steps >= 0 && options.steps <= 100, "muon: ", options.steps,
               " Newton-Schulz steps; expected 0 to 100, usually 5");
  for (size_t i = 0; i < slots.size(); ++i) {
    check_slot("muon", i, slots[i]);
    check_slot_state("muon", i, "momentum", slots[i].momentum, slots[i]);
    check_same_device("muon", {slots[0].param, slots[i].param});
    LAMINA_CHECK(slots[i].param.rank() == 2, "muon: parameter ", i, " is ", slots[i].param.shape(),
                 "; expected a matrix; update other parameters with adamw");
  }
  for (const MuonSlot& slot : slots) {
    mark_slot_written("muon", slot);
    slot.momentum.mark_written("muon");
    if (slot.param.numel() == 0) continue;
    const Device& device = slot.param.device();
    MuonMatrix args{slot, Tensor::empty(slot.param.shape(), accumulation_type(slot.param.dtype()), device), options};
    LAMINA_LAUNCH(device, (Work{0, 3 * args.update.nbytes() + slot.grad.nbytes()}), muon_momentum, args);
    LAMINA_LAUNCH(device, work_of(slot.param, options), muon_orthogonalize, args);
    LAMINA_LAUNCH(device, (Work{0, slot_bytes(slot, 0)}), muon_apply, args,
                  slot.lr * scale_of(slot.param, options.scale));
  }
}

}  // namespace lamina::ops
