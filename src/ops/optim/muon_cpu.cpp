// The element-wise parts of a Muon step; the GEMMs are in muon.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/optim/muon_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/optim/muon_kernel.h"
#include "lamina/ops/optim/slots_kernel.h"
#include "lamina/ops/optim/visit_slot.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

template <class A, class G>
void momentum_piece(const MuonMatrix& args, int64_t begin, int64_t end) {
  const hn::ScalableTag<A> d;
  const G* grad = args.slot.grad.data<G>() + begin;
  A* buffer = args.slot.momentum.data<A>() + begin;
  A* update = args.update.data<A>() + begin;
  const bool nesterov = args.options.nesterov;
  const auto keep = hn::Set(d, static_cast<A>(args.options.momentum));
  const auto take = hn::Set(d, static_cast<A>(1.0 - args.options.momentum));
  for_vectors(d, end - begin, [&](int64_t i, size_t count) HWY_ATTR {
    const auto g = load_n(d, grad + i, count);
    auto b = load_n(d, buffer + i, count);
    b = hn::MulAdd(take, hn::Sub(g, b), b);
    store_n(d, b, buffer + i, count);
    store_n(d, nesterov ? hn::MulAdd(keep, hn::Sub(b, g), g) : b, update + i, count);
  });
}

template <class P>
void apply_piece(const MuonMatrix& args, double scaled_lr, int64_t begin, int64_t end) {
  using A = Accumulate<P>;
  const ComputeTag<P> d;
  P* p = args.slot.param.data<P>() + begin;
  A* master = args.slot.master.defined() ? args.slot.master.data<A>() + begin : nullptr;
  const A* update = args.update.data<A>() + begin;
  const auto decay = hn::Set(d, static_cast<A>(1.0 - args.slot.lr * args.slot.weight_decay));
  const auto minus_lr = hn::Set(d, static_cast<A>(-scaled_lr));
  for_vectors(d, end - begin, [&](int64_t i, size_t count) HWY_ATTR {
    const auto w = hn::Mul(master != nullptr ? load_n(d, master + i, count) : load_n(d, p + i, count), decay);
    const auto updated = hn::MulAdd(minus_lr, load_n(d, update + i, count), w);
    if (master != nullptr) store_n(d, updated, master + i, count);
    store_n(d, updated, p + i, count);
  });
}

void muon_momentum(const MuonMatrix& args) {
  const std::vector<MuonSlot> one{args.slot};
  run_slots(one, [&](auto param, auto grad, const MuonSlot& /*slot*/, int64_t begin, int64_t end) HWY_ATTR {
    using A = Accumulate<typename decltype(param)::type>;
    momentum_piece<A, typename decltype(grad)::type>(args, begin, end);
  });
}

void muon_apply(const MuonMatrix& args, double scaled_lr) {
  const auto piece = [&](int64_t begin, int64_t end) HWY_ATTR {
    visit_floating(args.slot.param.dtype(),
                   [&](auto tag) HWY_ATTR { apply_piece<typename decltype(tag)::type>(args, scaled_lr, begin, end); });
  };
  args.slot.param.device().threads().ranges(args.slot.param.numel(), Chunks::kSize, piece);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(muon_momentum);
HWY_EXPORT(muon_apply);

namespace cpu {
void muon_momentum(const MuonMatrix& args) { HWY_DYNAMIC_DISPATCH(muon_momentum)(args); }
void muon_apply(const MuonMatrix& args, double scaled_lr) { HWY_DYNAMIC_DISPATCH(muon_apply)(args, scaled_lr); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
