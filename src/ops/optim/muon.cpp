#include "lamina/ops/optim/muon.h"

#include <algorithm>
#include <cmath>

#include "lamina/ops/launch.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/optim/grad_norm_kernel.h"
#include "lamina/ops/optim/muon_kernel.h"
#include "lamina/ops/optim/slots_kernel.h"

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

void check_matrices(size_t index, const MuonSlot& slot) {
  LAMINA_CHECK(slot.param.rank() >= 2, "muon: parameter ", index, " is ", slot.param.shape(),
               "; expected at least two dimensions; update other parameters with adamw");
  LAMINA_CHECK((slot.gather == nullptr) == (slot.own_part == nullptr), "muon: parameter ", index,
               " has one of gather and own_part; give both or neither");
  if (slot.parts.empty() || slot.gather) return;
  int64_t rows = 0;
  for (const int64_t part : slot.parts) {
    LAMINA_CHECK(part >= 0 && part <= slot.param.dim(-2) - rows, "muon: a part of parameter ", index, " has ", part,
                 " rows, ", slot.param.dim(-2) - rows, " remain of ", slot.param.shape());
    rows += part;
  }
  LAMINA_CHECK(rows == slot.param.dim(-2), "muon: the parts of parameter ", index, " have ", rows, " rows, it is ",
               slot.param.shape(), "; give the rows of every packed matrix");
}

/// One slot per nonempty matrix of a parameter.
std::vector<MuonSlot> matrices_of(const MuonSlot& slot) {
  const Shape all{slot.param.shape().rows(), slot.param.dim(-1)};
  const std::vector<int64_t> parts = slot.parts.empty() ? std::vector<int64_t>{slot.param.dim(-2)} : slot.parts;
  std::vector<MuonSlot> matrices;
  for (int64_t begin = 0; begin < all[0];) {
    for (const int64_t rows : parts) {
      const auto part = [&](const Tensor& tensor) {
        return tensor.defined() ? tensor.detach().reshape(all).slice(0, begin, rows) : tensor;
      };
      if (rows > 0) {
        matrices.push_back(
            {{part(slot.param), part(slot.grad), part(slot.master), slot.lr, slot.weight_decay}, part(slot.momentum)});
      }
      begin += rows;
    }
  }
  return matrices;
}

void update_matrix(const MuonSlot& slot, const MuonOptions& options) {
  const Device& device = slot.param.device();
  MuonMatrix args{slot, Tensor::empty(slot.param.shape(), accumulation_type(slot.param.dtype()), device), options};
  LAMINA_LAUNCH(device, (Work{0, 3 * args.update.nbytes() + slot.grad.nbytes()}), muon_momentum, args);
  LAMINA_LAUNCH(device, work_of(slot.param, options), muon_orthogonalize, args);
  LAMINA_LAUNCH(device, (Work{0, slot_bytes(slot, 0)}), muon_apply, args,
                slot.lr * scale_of(slot.param, options.scale));
}

/// Updates a parameter that is divided over ranks. Momentum is element-wise and runs on this rank's part; the rest
/// needs whole matrices, which are gathered first.
void update_part(const MuonSlot& slot, const MuonOptions& options) {
  const Device& device = slot.param.device();
  const Shape shape = slot.param.shape();
  MuonSlot flat = slot;
  flat.parts.clear();
  for (Tensor* tensor : {&flat.param, &flat.grad, &flat.master, &flat.momentum}) {
    if (tensor->defined()) *tensor = tensor->detach().reshape({shape.rows(), shape[-1]});
  }
  MuonMatrix args{flat, Tensor::empty(flat.param.shape(), accumulation_type(slot.param.dtype()), device), options};
  if (slot.param.numel() > 0) {
    LAMINA_LAUNCH(device, (Work{0, 3 * args.update.nbytes() + slot.grad.nbytes()}), muon_momentum, args);
  }
  const Tensor whole = slot.gather(args.update.reshape(shape));
  MuonSlot of_whole{{whole, whole, {}, 0, 0}, whole, slot.parts};
  for (const MuonSlot& matrix : matrices_of(of_whole)) {
    const MuonMatrix one{matrix, matrix.param, options};
    LAMINA_LAUNCH(device, work_of(matrix.param, options), muon_orthogonalize, one);
    scale_({matrix.param}, scale_of(matrix.param, options.scale));
  }
  if (slot.param.numel() == 0) return;
  args.update = slot.own_part(whole).reshape(flat.param.shape()).contiguous();
  LAMINA_LAUNCH(device, (Work{0, slot_bytes(flat, 0)}), muon_apply, args, slot.lr);
}

/// Newton–Schulz iterations on x [rows, cols]. A is the smaller of X·Xᵀ and Xᵀ·X. The update a·X + (b·A + c·A²)·X is
/// one GEMM: a is added to the diagonal of the polynomial b·A + c·A², which saves a pass over X.
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
    check_matrices(i, slots[i]);
  }
  for (const MuonSlot& slot : slots) {
    mark_slot_written("muon", slot);
    slot.momentum.mark_written("muon");
    if (slot.gather) {
      update_part(slot, options);
      continue;
    }
    if (slot.param.numel() == 0) continue;
    for (const MuonSlot& matrix : matrices_of(slot)) update_matrix(matrix, options);
  }
}

}  // namespace lamina::ops
