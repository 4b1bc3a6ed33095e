// One memory-bound pass over the elements, as in adamw_cpu.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/optim/sgd_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/optim/sgd_kernel.h"
#include "lamina/ops/optim/visit_slot.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

template <class P, class G>
void sgd_piece(const SgdSlot& slot, const SgdOptions& options, int64_t begin, int64_t end) {
  using A = Accumulate<P>;
  const ComputeTag<P> d;
  P* p = slot.param.data<P>() + begin;
  A* master = slot.master.defined() ? slot.master.data<A>() + begin : nullptr;
  const G* grad = slot.grad.data<G>() + begin;
  A* buffer = options.momentum > 0 ? slot.momentum.data<A>() + begin : nullptr;
  const bool nesterov = options.nesterov;
  const auto decay = hn::Set(d, static_cast<A>(slot.weight_decay));
  const auto momentum = hn::Set(d, static_cast<A>(options.momentum));
  const auto minus_lr = hn::Set(d, static_cast<A>(-slot.lr));
  for_vectors(d, end - begin, [&](int64_t i, size_t count) HWY_ATTR {
    const auto w = master != nullptr ? load_n(d, master + i, count) : load_n(d, p + i, count);
    auto g = hn::MulAdd(decay, w, load_n(d, grad + i, count));
    if (buffer != nullptr) {
      const auto b = hn::MulAdd(momentum, load_n(d, buffer + i, count), g);
      store_n(d, b, buffer + i, count);
      g = nesterov ? hn::MulAdd(momentum, b, g) : b;
    }
    const auto updated = hn::MulAdd(minus_lr, g, w);
    if (master != nullptr) store_n(d, updated, master + i, count);
    store_n(d, updated, p + i, count);
  });
}

void sgd_update(const std::vector<SgdSlot>& slots, const SgdOptions& options) {
  run_slots(slots, [&](auto param, auto grad, const SgdSlot& slot, int64_t begin, int64_t end) HWY_ATTR {
    sgd_piece<typename decltype(param)::type, typename decltype(grad)::type>(slot, options, begin, end);
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(sgd_update);

namespace cpu {
void sgd_update(const std::vector<SgdSlot>& slots, const SgdOptions& options) {
  HWY_DYNAMIC_DISPATCH(sgd_update)(slots, options);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
