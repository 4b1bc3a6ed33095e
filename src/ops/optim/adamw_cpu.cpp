// Memory-bound: four tensors are read, and three are written back to the lines just read, so streaming stores would not
// help. Elements are independent, so results do not depend on how they are divided into chunks.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/optim/adamw_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/optim/adamw_kernel.h"
#include "lamina/ops/optim/visit_slot.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// The scalars of one slot, computed in f64 and rounded to the type of the arithmetic, as in PyTorch.
template <class A>
struct AdamWScalars {
  A decay;      // 1 - lr · weight_decay
  A lerp;       // m ← base + lerp · (g - m), where base is m or g, whichever has the larger weight
  bool from_m;  // base is m
  A beta2;
  A rest2;  // 1 - beta2
  A root;   // sqrt(1 - beta2^step)
  A eps;
  A minus_step;  // -lr / (1 - beta1^step)

  AdamWScalars(const AdamWSlot& slot, const AdamWOptions& options) {
    const double steps = static_cast<double>(slot.step);
    const A weight = static_cast<A>(1.0 - options.beta1);
    decay = static_cast<A>(1.0 - slot.lr * slot.weight_decay);
    from_m = weight < A{0.5};
    lerp = from_m ? weight : weight - A{1};
    beta2 = static_cast<A>(options.beta2);
    rest2 = static_cast<A>(1.0 - options.beta2);
    root = static_cast<A>(std::sqrt(1.0 - std::pow(options.beta2, steps)));
    eps = static_cast<A>(options.eps);
    minus_step = static_cast<A>(-slot.lr / (1.0 - std::pow(options.beta1, steps)));
  }
};

template <class P, class G>
void update_piece(const AdamWSlot& slot, const AdamWOptions& options, int64_t begin, int64_t end) {
  using A = Accumulate<P>;
  const ComputeTag<P> d;
  const AdamWScalars<A> scalars(slot, options);
  P* p = slot.param.data<P>() + begin;
  A* master = slot.master.defined() ? slot.master.data<A>() + begin : nullptr;
  const G* grad = slot.grad.data<G>() + begin;
  A* first = slot.m.data<A>() + begin;
  A* second = slot.v.data<A>() + begin;
  const auto decay = hn::Set(d, scalars.decay);
  const auto lerp = hn::Set(d, scalars.lerp);
  const auto beta2 = hn::Set(d, scalars.beta2);
  const auto rest2 = hn::Set(d, scalars.rest2);
  const auto root = hn::Set(d, scalars.root);
  const auto eps = hn::Set(d, scalars.eps);
  const auto minus_step = hn::Set(d, scalars.minus_step);
  for_vectors(d, end - begin, [&](int64_t i, size_t count) HWY_ATTR {
    const auto g = load_n(d, grad + i, count);
    auto m = load_n(d, first + i, count);
    auto v = load_n(d, second + i, count);
    auto w = master != nullptr ? load_n(d, master + i, count) : load_n(d, p + i, count);
    w = hn::Mul(w, decay);
    m = hn::MulAdd(lerp, hn::Sub(g, m), scalars.from_m ? m : g);
    v = hn::MulAdd(hn::Mul(rest2, g), g, hn::Mul(v, beta2));
    const auto denominator = hn::Add(hn::Div(hn::Sqrt(v), root), eps);
    w = hn::Add(w, hn::Div(hn::Mul(minus_step, m), denominator));
    store_n(d, m, first + i, count);
    store_n(d, v, second + i, count);
    if (master != nullptr) store_n(d, w, master + i, count);
    store_n(d, w, p + i, count);
  });
}

void adamw_update(const std::vector<AdamWSlot>& slots, const AdamWOptions& options) {
  run_slots(slots, [&](auto param, auto grad, const AdamWSlot& slot, int64_t begin, int64_t end) HWY_ATTR {
    update_piece<typename decltype(param)::type, typename decltype(grad)::type>(slot, options, begin, end);
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(adamw_update);

namespace cpu {
void adamw_update(const std::vector<AdamWSlot>& slots, const AdamWOptions& options) {
  HWY_DYNAMIC_DISPATCH(adamw_update)(slots, options);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
