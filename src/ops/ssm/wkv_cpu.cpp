// A task is one vector of channels of one batch entry; its state stays in registers. Backward first recomputes the
// states into a buffer and then runs backwards over them. The gradients of decay and bonus are summed per batch entry,
// then over the entries in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/wkv_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/base/simd_math-inl.h"
#include "lamina/ops/ssm/wkv_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// The sums A = a e^p and B = b e^p of a vector of channels.
template <class V>
struct WkvState {
  V a, b, p;
};

/// The weights of the state and of the current value at one position, scaled so that the larger one is 1.
template <class V>
struct WkvTerms {
  V old_weight, new_weight;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE WkvTerms<V> scaled_terms(D d, V old_exponent, V new_exponent, V largest) {
  return {exp(d, hn::Sub(old_exponent, largest)), exp(d, hn::Sub(new_exponent, largest))};
}

/// One vector of channels of one batch entry.
template <class T>
struct WkvLane {
  using Real = Accumulate<T>;
  using D = ComputeTag<T>;
  using V = hn::Vec<D>;
  const WkvForward& args;
  int64_t entry, channel;
  int64_t seq = args.k.dim(1);
  int64_t channels = args.k.dim(2);
  size_t count = static_cast<size_t>(std::min(static_cast<int64_t>(hn::Lanes(D())), channels - channel));

  int64_t at(int64_t t) const { return (entry * seq + t) * channels + channel; }
  int64_t state_at(int64_t part) const { return (entry * 3 + part) * channels + channel; }
  HWY_INLINE V load(const Tensor& tensor, int64_t t) const { return load_n(D(), tensor.data<T>() + at(t), count); }
  HWY_INLINE V per_channel(const Tensor& tensor) const { return load_n(D(), tensor.data<Real>() + channel, count); }
  HWY_INLINE V log_decay() const { return hn::Neg(exp(D(), per_channel(args.decay))); }

  HWY_INLINE WkvState<V> initial() const {
    const auto empty = hn::Set(D(), static_cast<Real>(kEmptyExponent));
    if (!args.initial_state.defined()) return {hn::Zero(D()), hn::Zero(D()), empty};
    const Real* from = args.initial_state.template data<Real>();
    const auto part = [&](int64_t i) HWY_ATTR { return load_n(D(), from + state_at(i), count); };
    const auto b = part(1);
    return {part(0), b, hn::IfThenElse(hn::Eq(b, hn::Zero(D())), empty, part(2))};
  }
  HWY_INLINE void store_last(const WkvState<V>& s) const {
    Real* to = args.last_state.template data<Real>();
    store_n(D(), s.a, to + state_at(0), count);
    store_n(D(), s.b, to + state_at(1), count);
    store_n(D(), hn::IfThenElse(hn::Eq(s.b, hn::Zero(D())), hn::Zero(D()), s.p), to + state_at(2), count);
  }
  /// The state after a position with key k and value v.
  HWY_INLINE WkvState<V> next(const WkvState<V>& s, V w, V k, V v) const {
    const auto old = hn::Add(w, s.p);
    const auto p = hn::Max(old, k);
    const auto e = scaled_terms(D(), old, k, p);
    return {hn::MulAdd(e.old_weight, s.a, hn::Mul(e.new_weight, v)), hn::MulAdd(e.old_weight, s.b, e.new_weight), p};
  }
};

template <class T>
void forward(const WkvForward& args) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  const int64_t vectors = (args.k.dim(2) + lanes - 1) / lanes;
  args.k.device().threads().tasks(args.k.dim(0) * vectors, [&](int64_t task) HWY_ATTR {
    const ComputeTag<T> d;
    const WkvLane<T> lane{args, task / vectors, task % vectors * lanes};
    const auto w = lane.log_decay();
    const auto bonus = lane.per_channel(args.first);
    auto s = lane.initial();
    for (int64_t t = 0; t < lane.seq; ++t) {
      const auto k = lane.load(args.k, t);
      const auto v = lane.load(args.v, t);
      const auto now = hn::Add(bonus, k);
      const auto f = scaled_terms(d, s.p, now, hn::Max(s.p, now));
      const auto above = hn::MulAdd(f.old_weight, s.a, hn::Mul(f.new_weight, v));
      store_n(d, hn::Div(above, hn::MulAdd(f.old_weight, s.b, f.new_weight)), args.y.data<T>() + lane.at(t),
              lane.count);
      s = lane.next(s, w, k, v);
    }
    lane.store_last(s);
  });
}

/// Backward of one vector of channels of one batch entry. Stores its parts of the gradients of decay and bonus.
template <class T>
void lane_backward(const WkvBackward& args, const WkvLane<T>& lane, Accumulate<T>* ddecay, Accumulate<T>* dfirst) {
  using Real = Accumulate<T>;
  const ComputeTag<T> d;
  const WkvForward& f = args.forward;
  const auto w = lane.log_decay();
  const auto bonus = lane.per_channel(f.first);
  const int64_t plane = f.k.numel();
  Real* states = args.states.data<Real>();
  auto s = lane.initial();
  for (int64_t t = 0; t < lane.seq; ++t) {
    store_n(d, s.a, states + lane.at(t), lane.count);
    store_n(d, s.b, states + plane + lane.at(t), lane.count);
    store_n(d, s.p, states + 2 * plane + lane.at(t), lane.count);
    s = lane.next(s, w, lane.load(f.k, t), lane.load(f.v, t));
  }
  auto after = s.p;  // p after position t
  auto alpha = hn::Zero(d);
  auto beta = hn::Zero(d);
  auto dw = hn::Zero(d);
  auto dbonus = hn::Zero(d);
  for (int64_t t = lane.seq - 1; t >= 0; --t) {
    const auto k = lane.load(f.k, t);
    const auto v = lane.load(f.v, t);
    const auto a = load_n(d, states + lane.at(t), lane.count);
    const auto b = load_n(d, states + plane + lane.at(t), lane.count);
    const auto p = load_n(d, states + 2 * plane + lane.at(t), lane.count);
    const auto e = scaled_terms(d, hn::Add(w, p), k, after);
    const auto now = hn::Add(bonus, k);
    const auto y_terms = scaled_terms(d, p, now, hn::Max(p, now));
    const auto below = hn::MulAdd(y_terms.old_weight, b, y_terms.new_weight);
    const auto y = hn::Div(hn::MulAdd(y_terms.old_weight, a, hn::Mul(y_terms.new_weight, v)), below);
    const auto g = hn::Div(lane.load(args.dy, t), below);
    const auto g_new = hn::Mul(y_terms.new_weight, g);
    const auto g_old = hn::Mul(y_terms.old_weight, g);
    const auto du = hn::Mul(g_new, hn::Sub(v, y));
    dbonus = hn::Add(dbonus, du);
    store_n(d, hn::MulAdd(e.new_weight, hn::MulAdd(alpha, v, beta), du), args.dk.data<T>() + lane.at(t), lane.count);
    store_n(d, hn::MulAdd(e.new_weight, alpha, g_new), args.dv.data<T>() + lane.at(t), lane.count);
    dw = hn::MulAdd(e.old_weight, hn::MulAdd(alpha, a, hn::Mul(beta, b)), dw);
    alpha = hn::MulAdd(e.old_weight, alpha, g_old);
    beta = hn::NegMulAdd(g_old, y, hn::Mul(e.old_weight, beta));
    after = p;
  }
  store_n(d, hn::Mul(dw, w), ddecay + lane.channel, lane.count);
  store_n(d, dbonus, dfirst + lane.channel, lane.count);
}

template <class T>
void backward(const WkvBackward& args) {
  using Real = Accumulate<T>;
  const WkvForward& f = args.forward;
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  const int64_t batch = f.k.dim(0);
  const int64_t channels = f.k.dim(2);
  const int64_t vectors = (channels + lanes - 1) / lanes;
  std::vector<Real> decays(static_cast<size_t>(batch * channels));
  std::vector<Real> firsts(static_cast<size_t>(batch * channels));
  f.k.device().threads().tasks(batch * vectors, [&](int64_t task) HWY_ATTR {
    const WkvLane<T> lane{f, task / vectors, task % vectors * lanes};
    const int64_t row = lane.entry * channels;
    lane_backward<T>(args, lane, decays.data() + row, firsts.data() + row);
  });
  const auto add_up = [&](const std::vector<Real>& parts, const Tensor& total) {
    for (int64_t channel = 0; channel < channels; ++channel) {
      double sum = 0;
      for (int64_t entry = 0; entry < batch; ++entry) sum += parts[static_cast<size_t>(entry * channels + channel)];
      total.data<Real>()[channel] = static_cast<Real>(sum);
    }
  };
  add_up(decays, args.ddecay);
  add_up(firsts, args.dfirst);
}

void wkv_forward(const WkvForward& args) {
  visit_floating(args.k.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void wkv_backward(const WkvBackward& args) {
  visit_floating(args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(wkv_forward);
HWY_EXPORT(wkv_backward);

namespace cpu {
void wkv_forward(const WkvForward& args) { HWY_DYNAMIC_DISPATCH(wkv_forward)(args); }
void wkv_backward(const WkvBackward& args) { HWY_DYNAMIC_DISPATCH(wkv_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
