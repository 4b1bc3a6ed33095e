// A task is one vector of channels of one batch entry; its state stays in a register. Backward first recomputes the
// states into a buffer and then runs backwards over them. The gradients of the decays are summed per batch entry, then
// over the entries in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/rg_lru_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/rg_lru_kernel.h"
#include "lamina/ops/ssm/softplus-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// One vector of channels of one batch entry.
template <class T>
struct LruLane {
  using Real = Accumulate<T>;
  using D = ComputeTag<T>;
  using V = hn::Vec<D>;
  const RgLruForward& args;
  int64_t entry, channel;
  int64_t seq = args.x.dim(1);
  int64_t channels = args.x.dim(2);
  size_t count = static_cast<size_t>(std::min(static_cast<int64_t>(hn::Lanes(D())), channels - channel));
  bool begun = args.begun.defined() && args.begun.template data<Real>()[entry] != Real{0};

  int64_t state_at() const { return entry * channels + channel; }
  int64_t at(int64_t t) const { return (entry * seq + t) * channels + channel; }
  HWY_INLINE V load(const Tensor& tensor, int64_t t) const { return load_n(D(), tensor.data<T>() + at(t), count); }
  HWY_INLINE V state(const Tensor& tensor) const {
    return tensor.defined() ? load_n(D(), tensor.data<Real>() + state_at(), count) : hn::Zero(D());
  }
  HWY_INLINE V decay() const { return load_n(D(), args.decay.template data<Real>() + channel, count); }
  /// 8 · softplus(decay).
  HWY_INLINE V rate() const { return hn::Mul(hn::Set(D(), static_cast<Real>(kLruRate)), softplus(D(), decay())); }
  bool is_first(int64_t t) const { return t == 0 && !begun; }
};

/// The gates and decay of one position.
template <class V>
struct LruGates {
  V r, r_rest, i, i_rest;  ///< σ and 1 − σ
  V a;
  V rest;   ///< 1 − a²
  V scale;  ///< sqrt(1 − a²), the factor on the input
};

template <class T>
HWY_INLINE LruGates<hn::Vec<ComputeTag<T>>> gates(const LruLane<T>& k, hn::Vec<ComputeTag<T>> rate, int64_t t) {
  const ComputeTag<T> d;
  const auto r = sigmoid_pair(d, k.load(k.args.recurrence, t));
  const auto i = sigmoid_pair(d, k.load(k.args.input, t));
  const auto log_a = hn::Neg(hn::Mul(rate, r.at_x));
  const auto rest = hn::Neg(expm1_of_negative(d, hn::Add(log_a, log_a)));
  const auto one = hn::Set(d, static_cast<Accumulate<T>>(1));
  return {r.at_x, r.at_minus_x, i.at_x, i.at_minus_x, exp(d, log_a), rest, k.is_first(t) ? one : hn::Sqrt(rest)};
}

template <class T>
void forward(const RgLruForward& args) {
  using Real = Accumulate<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  const int64_t vectors = (args.x.dim(2) + lanes - 1) / lanes;
  args.x.device().threads().tasks(args.x.dim(0) * vectors, [&](int64_t task) HWY_ATTR {
    const ComputeTag<T> d;
    const LruLane<T> k{args, task / vectors, task % vectors * lanes};
    const auto rate = k.rate();
    auto h = k.state(args.initial_state);
    for (int64_t t = 0; t < k.seq; ++t) {
      const auto g = gates<T>(k, rate, t);
      h = hn::MulAdd(g.a, h, hn::Mul(g.scale, hn::Mul(g.i, k.load(args.x, t))));
      store_n(d, h, args.y.data<T>() + k.at(t), k.count);
    }
    store_n(d, h, args.last_state.data<Real>() + k.state_at(), k.count);
  });
}

/// Backward of one vector of channels of one batch entry. Stores its part of the gradient of the decays.
template <class T>
void lane_backward(const RgLruBackward& args, const LruLane<T>& k, Accumulate<T>* ddecay) {
  using Real = Accumulate<T>;
  const ComputeTag<T> d;
  const RgLruForward& f = args.forward;
  const auto rate = k.rate();
  auto h = k.state(f.initial_state);
  Real* states = args.states.data<Real>();
  for (int64_t t = 0; t < k.seq; ++t) {
    store_n(d, h, states + k.at(t), k.count);
    const auto g = gates<T>(k, rate, t);
    h = hn::MulAdd(g.a, h, hn::Mul(g.scale, hn::Mul(g.i, k.load(f.x, t))));
  }
  const auto flattest = hn::Set(d, static_cast<Real>(1.0 / (kLruSteepest * kLruSteepest)));
  const auto four = hn::Set(d, static_cast<Real>(4));
  auto grad = k.state(args.dlast_state);
  auto sum = hn::Zero(d);
  for (int64_t t = k.seq - 1; t >= 0; --t) {
    const auto g = gates<T>(k, rate, t);
    const auto x = k.load(f.x, t);
    grad = hn::Add(grad, k.load(args.dy, t));
    const auto scaled = hn::Mul(grad, g.scale);
    store_n(d, hn::Mul(scaled, g.i), args.dx.data<T>() + k.at(t), k.count);
    const auto di = hn::Mul(scaled, x);
    store_n(d, hn::Mul(di, hn::Mul(g.i, g.i_rest)), args.dinput.data<T>() + k.at(t), k.count);
    // The factor on the input is sqrt(rest), and d rest / d log a = −2 a².
    auto dlog = hn::Mul(grad, hn::Mul(g.a, load_n(d, states + k.at(t), k.count)));
    if (!k.is_first(t)) {
      const auto slope = hn::Div(hn::Mul(hn::Add(g.a, g.a), g.a), hn::Sqrt(hn::Max(hn::Mul(four, g.rest), flattest)));
      dlog = hn::NegMulAdd(hn::Mul(grad, hn::Mul(g.i, x)), slope, dlog);
    }
    sum = hn::NegMulAdd(g.r, dlog, sum);
    const auto dr = hn::Neg(hn::Mul(rate, dlog));
    store_n(d, hn::Mul(dr, hn::Mul(g.r, g.r_rest)), args.drecurrence.data<T>() + k.at(t), k.count);
    grad = hn::Mul(grad, g.a);
  }
  const auto slope = hn::Mul(hn::Set(d, static_cast<Real>(kLruRate)), sigmoid(d, k.decay()));
  store_n(d, hn::Mul(sum, slope), ddecay + k.channel, k.count);
  if (args.dinitial_state.defined()) {
    store_n(d, grad, args.dinitial_state.data<Real>() + k.state_at(), k.count);
  }
}

template <class T>
void backward(const RgLruBackward& args) {
  using Real = Accumulate<T>;
  const RgLruForward& f = args.forward;
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  const int64_t batch = f.x.dim(0);
  const int64_t channels = f.x.dim(2);
  const int64_t vectors = (channels + lanes - 1) / lanes;
  std::vector<Real> parts(static_cast<size_t>(batch * channels));
  f.x.device().threads().tasks(batch * vectors, [&](int64_t task) HWY_ATTR {
    const LruLane<T> k{f, task / vectors, task % vectors * lanes};
    lane_backward<T>(args, k, parts.data() + k.entry * channels);
  });
  for (int64_t channel = 0; channel < channels; ++channel) {
    double sum = 0;
    for (int64_t entry = 0; entry < batch; ++entry) sum += parts[static_cast<size_t>(entry * channels + channel)];
    args.ddecay.data<Real>()[channel] = static_cast<Real>(sum);
  }
}

void rg_lru_forward(const RgLruForward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void rg_lru_backward(const RgLruBackward& args) {
  visit_floating(args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(rg_lru_forward);
HWY_EXPORT(rg_lru_backward);

namespace cpu {
void rg_lru_forward(const RgLruForward& args) { HWY_DYNAMIC_DISPATCH(rg_lru_forward)(args); }
void rg_lru_backward(const RgLruBackward& args) { HWY_DYNAMIC_DISPATCH(rg_lru_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
