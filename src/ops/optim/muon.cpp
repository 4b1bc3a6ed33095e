#include "lamina/ops/optim/muon.h"

#include <cmath>

#include "lamina/ops/launch.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/optim/grad_norm.h"

namespace lamina::ops {
namespace {

constexpr double kA = 3.4445;
constexpr double kB = -4.7750;
constexpr double kC = 2.0315;

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

/// Newton–Schulz on a wide matrix x [rows, cols], rows ≤ cols. a·X + (b·A + c·A²)·X is computed as one product with
/// a added to the diagonal of the square, which saves a pass over X.
template <class T>
void newton_schulz(const Threads& threads, Tensor& x, int steps) {
  const int64_t rows = x.dim(0);
  const int64_t cols = x.dim(1);
  const Tensor a = Tensor::empty({rows, rows}, x.dtype(), x.device());
  const Tensor b = Tensor::empty({rows, rows}, x.dtype(), x.device());
  Tensor next = Tensor::empty(x.shape(), x.dtype(), x.device());
  for (int step = 0; step < steps; ++step) {
    const T* from = x.data<T>();
    T* square = a.data<T>();
    T* poly = b.data<T>();
    gemm(threads, Gemm<T>{.transpose_b = true,
                          .m = rows,
                          .n = rows,
                          .k = cols,
                          .a = from,
                          .lda = cols,
                          .b = from,
                          .ldb = cols,
                          .c = square,
                          .ldc = rows});
    gemm(threads, Gemm<T>{.m = rows,
                          .n = rows,
                          .k = rows,
                          .alpha = static_cast<T>(kC),
                          .a = square,
                          .lda = rows,
                          .b = square,
                          .ldb = rows,
                          .c = poly,
                          .ldc = rows});
    threads.ranges(rows, rows_per_range(rows), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * rows; i < end * rows; ++i) poly[i] += static_cast<T>(kB) * square[i];
      for (int64_t i = begin; i < end; ++i) poly[i * rows + i] += static_cast<T>(kA);
    });
    gemm(threads, Gemm<T>{.m = rows,
                          .n = cols,
                          .k = rows,
                          .a = poly,
                          .lda = rows,
                          .b = from,
                          .ldb = cols,
                          .c = next.data<T>(),
                          .ldc = cols});
    std::swap(x, next);
  }
}

}  // namespace

namespace cpu {

void muon_orthogonalize(const MuonMatrix& args) {
  Tensor target = args.update;
  const double norm = global_norm({target}).norm;
  LAMINA_CHECK(std::isfinite(norm), "muon: the gradient or momentum of a parameter ", target.shape(),
               " is not finite; clip with error_if_nonfinite before the step, or skip it");
  scale_({target}, 1.0 / std::max(norm, args.options.eps));
  const bool tall = target.dim(0) > target.dim(1);
  Tensor x = tall ? target.transpose(0, 1).contiguous() : target;
  const Threads& threads = target.device().threads();
  if (x.dtype() == DType::f64) {
    newton_schulz<double>(threads, x, args.options.steps);
  } else {
    newton_schulz<float>(threads, x, args.options.steps);
  }
  if (!x.shares_memory_with(target)) target.copy_(tall ? x.transpose(0, 1) : x);
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
