#include "lamina/ops/moe/dispatch.h"

#include <cmath>

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/moe/dispatch_kernel.h"
#include "lamina/ops/moe/expert_indices.h"

namespace lamina::ops {
namespace {

void check_rows(const char* op, const char* name, const Tensor& rows, int64_t expected, const DispatchPlan& plan) {
  LAMINA_CHECK(plan.slot_of.defined(), op, ": the plan is empty; make it with plan_dispatch");
  check_floating(op, name, rows);
  LAMINA_CHECK(rows.rank() == 2 && rows.dim(0) == expected, op, ": ", name, " is ", rows.shape(), "; the plan is for ",
               plan.tokens, " tokens, k = ", plan.k, " and ", plan.slots, " slots: expected [", expected, ", width]");
}

}  // namespace

int64_t expert_capacity(int64_t tokens, int64_t k, int64_t experts, double factor) {
  check_finite("expert_capacity", "factor", factor);
  LAMINA_CHECK(tokens >= 0 && k >= 1 && experts >= 1 && factor > 0, "expert_capacity: tokens ", tokens, ", k ", k,
               ", experts ", experts, ", factor ", factor, "; expected positive numbers");
  const double share = factor * static_cast<double>(tokens) * static_cast<double>(k) / static_cast<double>(experts);
  LAMINA_CHECK(share < 9e15, "expert_capacity: factor ", factor, " gives ", share, " slots; expected a small factor");
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share)));
}

DispatchPlan plan_dispatch(const Tensor& indices, int64_t experts, int64_t capacity) {
  LAMINA_CHECK(experts >= 1, "plan_dispatch: experts is ", experts, "; expected at least 1");
  LAMINA_CHECK(capacity >= 0, "plan_dispatch: capacity is ", capacity,
               "; expected 0 for no limit or a positive number");
  const Tensor dense = checked_expert_indices("plan_dispatch", indices, experts);
  const Device& device = dense.device();
  DispatchPlan plan;
  plan.tokens = dense.dim(0);
  plan.k = dense.dim(1);
  plan.slots = dense.numel();
  if (capacity > 0 && capacity < dense.numel() / experts + 1) {
    plan.slots = std::min(plan.slots, experts * capacity);
  }
  plan.offsets = Tensor::empty({experts + 1}, DType::i64, device);
  plan.slot_of = Tensor::empty(dense.shape(), DType::i64, device);
  plan.choice = Tensor::empty({plan.slots}, DType::i64, device);
  plan.kept = Tensor::empty(dense.shape(), DType::u8, device);
  plan.dropped = Tensor::empty({1}, DType::i64, device);
  LAMINA_LAUNCH(device, (Work{0, dense.nbytes() + plan.slot_of.nbytes() + plan.choice.nbytes()}), plan_dispatch, dense,
                capacity, plan);
  return plan;
}

Tensor dispatch(const Tensor& x, const DispatchPlan& plan) {
  check_rows("dispatch", "x", x, plan.tokens, plan);
  check_same_device("dispatch", {x, plan.slot_of});
  const int64_t width = x.dim(1);
  Tensor y = Tensor::empty({plan.slots, width}, x.dtype(), x.device());
  const GatherRows args{x.contiguous(), plan.choice, {}, plan.k, y};
  LAMINA_LAUNCH(x.device(), (Work{0, args.from.nbytes() + y.nbytes()}), gather_rows, args);
  record("dispatch", {x}, {y}, {plan.slot_of}, [](Backward& b) {
    const Tensor dy = b.grad(0);
    const Tensor& slot_of = b.saved(0);
    SumRows back{dy, slot_of, {}, Tensor::empty({slot_of.dim(0), dy.dim(1)}, dy.dtype(), dy.device())};
    LAMINA_LAUNCH(dy.device(), (Work{dy.numel(), dy.nbytes() + back.to.nbytes()}), sum_rows, back);
    b.add(0, std::move(back.to));
  });
  return y;
}

Tensor combine(const Tensor& rows, const Tensor& weights, const DispatchPlan& plan) {
  check_rows("combine", "rows", rows, plan.slots, plan);
  check_floating("combine", "weights", weights);
  check_shape("combine", "weights", weights, {plan.tokens, plan.k});
  check_same_device("combine", {rows, weights, plan.slot_of});
  Tensor y = Tensor::empty({plan.tokens, rows.dim(1)}, rows.dtype(), rows.device());
  const SumRows args{rows.contiguous(), plan.slot_of, as_accumulation(weights, rows.dtype()), y};
  LAMINA_LAUNCH(rows.device(), (Work{2 * rows.numel(), rows.nbytes() + y.nbytes()}), sum_rows, args);
  record("combine", {rows, weights}, {y}, {args.from, args.factor, plan.slot_of, plan.choice}, [](Backward& b) {
    const Tensor dy = b.grad(0);
    const Tensor& from = b.saved(0);
    if (b.needs(0)) {
      GatherRows back{dy, b.saved(3), b.saved(1), b.saved(2).dim(1),
                      Tensor::empty(from.shape(), from.dtype(), from.device())};
      LAMINA_LAUNCH(dy.device(), (Work{from.numel(), dy.nbytes() + from.nbytes()}), gather_rows, back);
      b.add(0, std::move(back.to));
    }
    if (b.needs(1)) {
      DotRows back{from, dy, b.saved(2), Tensor::empty(b.saved(1).shape(), b.saved(1).dtype(), dy.device())};
      LAMINA_LAUNCH(dy.device(), (Work{2 * from.numel(), from.nbytes() + dy.nbytes()}), dot_rows, back);
      b.add(1, std::move(back.dot));
    }
  });
  return y;
}

}  // namespace lamina::ops
