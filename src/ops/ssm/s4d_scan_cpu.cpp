// A task is one vector of channels of one batch entry; its states stay in the L1 cache. Backward recomputes the states
// of one chunk at a time. The gradients of z and c' are summed per batch entry, then over the entries in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/s4d_scan_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/s4d_kernel.h"
#include "lamina/ops/ssm/s4d_modes.h"
#include "lamina/ops/ssm/selective_scan_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// The modes of a vector of channels: each array is [n][lanes], zero for missing channels.
template <class Real>
struct ModeVectors {
  std::vector<Real> z_re, z_im, gain_re, gain_im;  // gain is 2 c'

  ModeVectors(const S4dParameters& parameters, int64_t channel, int64_t count, int64_t lanes) {
    const int64_t n = parameters.a_imag.dim(1);
    for (auto* values : {&z_re, &z_im, &gain_re, &gain_im}) values->assign(static_cast<size_t>(n * lanes), Real{0});
    for (int64_t lane = 0; lane < count; ++lane) {
      for (int64_t i = 0; i < n; ++i) {
        const S4dMode mode = s4d_mode(parameters, (channel + lane) * n + i);
        const auto at = static_cast<size_t>(i * lanes + lane);
        const std::complex<double> gain = 2.0 * mode.gain();
        z_re[at] = static_cast<Real>(mode.z.real());
        z_im[at] = static_cast<Real>(mode.z.imag());
        gain_re[at] = static_cast<Real>(gain.real());
        gain_im[at] = static_cast<Real>(gain.imag());
      }
    }
  }
};

template <class T>
struct Lane {
  using Real = Accumulate<T>;
  using D = ComputeTag<T>;
  const S4dScanForward& args;
  int64_t entry, channel;
  int64_t seq = args.u.dim(1);
  int64_t channels = args.u.dim(2);
  int64_t n = args.parameters.a_imag.dim(1);
  int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  size_t count = static_cast<size_t>(std::min(lanes, channels - channel));
  ModeVectors<Real> modes{args.parameters, channel, static_cast<int64_t>(count), lanes};
  const T* u = args.u.template data<T>() + entry * seq * channels + channel;
  hn::Vec<D> d = args.d.defined() ? load_n(D(), args.d.template data<Real>() + channel, count) : hn::Zero(D());

  size_t buffer() const { return static_cast<size_t>(2 * n * lanes); }

  /// Converts states [batch, channels, n, 2] to and from [re, im][n][lanes].
  std::vector<Real> gather(const Tensor& state) const {
    std::vector<Real> to(buffer(), Real{0});
    if (!state.defined()) return to;
    each(state.data<Real>(), [&](Real& outside, size_t at) { to[at] = outside; });
    return to;
  }
  void scatter(const std::vector<Real>& from, const Tensor& state) const {
    if (state.defined()) each(state.data<Real>(), [&](Real& outside, size_t at) { outside = from[at]; });
  }
  template <class F>
  void each(Real* state, const F& body) const {
    Real* first = state + (entry * channels + channel) * n * 2;
    for (int64_t lane = 0; lane < static_cast<int64_t>(count); ++lane) {
      for (int64_t i = 0; i < 2 * n; ++i) {
        body(first[lane * 2 * n + i], static_cast<size_t>((i % 2 * n + i / 2) * lanes + lane));
      }
    }
  }
  /// Address in the saved states [batch, chunks, 2, n, channels].
  Real* saved(int64_t chunk) const {
    return args.states.template data<Real>() + (entry * args.states.dim(1) + chunk) * 2 * n * channels + channel;
  }

  /// next = z · state + u for all modes; returns Re Σ gain · next.
  HWY_INLINE hn::Vec<D> step(hn::Vec<D> uv, const Real* state, Real* next) const {
    const D tag;
    const int64_t width = lanes;
    const int64_t imaginary = n * width;
    const Real* z_re = modes.z_re.data();
    const Real* z_im = modes.z_im.data();
    const Real* gain_re = modes.gain_re.data();
    const Real* gain_im = modes.gain_im.data();
    auto from_re = hn::Zero(tag);
    auto from_im = hn::Zero(tag);
    for (int64_t j = 0; j < imaginary; j += width) {
      const auto re = load(tag, state + j);
      const auto im = load(tag, state + imaginary + j);
      const auto zr = load(tag, z_re + j);
      const auto zi = load(tag, z_im + j);
      const auto next_re = hn::NegMulAdd(zi, im, hn::MulAdd(zr, re, uv));
      const auto next_im = hn::MulAdd(zi, re, hn::Mul(zr, im));
      store(tag, next_re, next + j);
      store(tag, next_im, next + imaginary + j);
      from_re = hn::MulAdd(load(tag, gain_re + j), next_re, from_re);
      from_im = hn::MulAdd(load(tag, gain_im + j), next_im, from_im);
    }
    return hn::Sub(from_re, from_im);
  }
};

template <class T>
void forward(const S4dScanForward& args) {
  using Real = Accumulate<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  const int64_t vectors = (args.u.dim(2) + lanes - 1) / lanes;
  args.u.device().threads().tasks(args.u.dim(0) * vectors, [&](int64_t task) HWY_ATTR {
    const ComputeTag<T> d;
    const Lane<T> k{args, task / vectors, task % vectors * lanes};
    std::vector<Real> state = k.gather(args.initial_state);
    T* y = args.y.data<T>() + k.entry * k.seq * k.channels + k.channel;
    for (int64_t t = 0; t < k.seq; ++t) {
      if (args.states.defined() && t % kScanChunk == 0) {
        Real* to = k.saved(t / kScanChunk);
        for (int64_t i = 0; i < 2 * k.n; ++i)
          store_n(d, load(d, state.data() + i * lanes), to + i * k.channels, k.count);
      }
      const auto u = load_n(d, k.u + t * k.channels, k.count);
      const auto sum = k.step(u, state.data(), state.data());
      store_n(d, hn::MulAdd(k.d, u, sum), y + t * k.channels, k.count);
    }
    k.scatter(state, args.last_state);
  });
}

/// Gradients of z and of the gains, of one vector of channels and one batch entry: four arrays [n][lanes].
template <class Real>
struct ModeGradients {
  std::vector<Real> z_re, z_im, gain_re, gain_im;
  explicit ModeGradients(size_t size) : z_re(size), z_im(size), gain_re(size), gain_im(size) {}
};

/// Backward of one position: `grad` [re, im][n][lanes] becomes the gradient before it. Returns Σ Re grad at the
/// position.
template <class T>
hn::Vec<ComputeTag<T>> step_back(const Lane<T>& k, hn::Vec<ComputeTag<T>> dy, const Accumulate<T>* before,
                                 const Accumulate<T>* after, Accumulate<T>* grad, ModeGradients<Accumulate<T>>& sums) {
  using Real = Accumulate<T>;
  const ComputeTag<T> d;
  const int64_t width = k.lanes;
  const int64_t imaginary = k.n * width;
  const Real* z_re = k.modes.z_re.data();
  const Real* z_im = k.modes.z_im.data();
  const Real* gain_re = k.modes.gain_re.data();
  const Real* gain_im = k.modes.gain_im.data();
  Real* dz_re = sums.z_re.data();
  Real* dz_im = sums.z_im.data();
  Real* dgain_re = sums.gain_re.data();
  Real* dgain_im = sums.gain_im.data();
  auto du = hn::Zero(d);
  for (int64_t j = 0; j < imaginary; j += width) {
    const auto re = hn::MulAdd(load(d, gain_re + j), dy, load(d, grad + j));
    const auto im = hn::NegMulAdd(load(d, gain_im + j), dy, load(d, grad + imaginary + j));
    du = hn::Add(du, re);
    store(d, hn::MulAdd(dy, load(d, after + j), load(d, dgain_re + j)), dgain_re + j);
    store(d, hn::NegMulAdd(dy, load(d, after + imaginary + j), load(d, dgain_im + j)), dgain_im + j);
    const auto x_re = load(d, before + j);
    const auto x_im = load(d, before + imaginary + j);
    store(d, hn::MulAdd(re, x_re, hn::MulAdd(im, x_im, load(d, dz_re + j))), dz_re + j);
    store(d, hn::NegMulAdd(re, x_im, hn::MulAdd(im, x_re, load(d, dz_im + j))), dz_im + j);
    const auto zr = load(d, z_re + j);
    const auto zi = load(d, z_im + j);
    store(d, hn::MulAdd(zr, re, hn::Mul(zi, im)), grad + j);
    store(d, hn::NegMulAdd(zi, re, hn::Mul(zr, im)), grad + imaginary + j);
  }
  return du;
}

template <class T>
void scan_backward(const S4dScanBackward& args, const Lane<T>& k, ModeGradients<Accumulate<T>>& sums,
                   Accumulate<T>* dd) {
  using Real = Accumulate<T>;
  const ComputeTag<T> d;
  const auto size = static_cast<int64_t>(k.buffer());
  std::vector<Real> states(static_cast<size_t>((kScanChunk + 1) * size));
  std::vector<Real> grad = k.gather(args.dlast_state);
  const T* dy = args.dy.data<T>() + k.entry * k.seq * k.channels + k.channel;
  T* du = args.du.data<T>() + k.entry * k.seq * k.channels + k.channel;
  auto skip = hn::Zero(d);
  for (int64_t chunk = args.forward.states.dim(1) - 1; chunk >= 0; --chunk) {
    const int64_t begin = chunk * kScanChunk;
    const int64_t end = std::min(begin + kScanChunk, k.seq);
    const Real* saved = k.saved(chunk);
    for (int64_t i = 0; i < 2 * k.n; ++i) {
      store(d, load_n(d, saved + i * k.channels, k.count), states.data() + i * k.lanes);
    }
    for (int64_t t = begin; t < end; ++t) {
      Real* at = states.data() + (t - begin) * size;
      k.step(load_n(d, k.u + t * k.channels, k.count), at, at + size);
    }
    for (int64_t t = end - 1; t >= begin; --t) {
      const Real* before = states.data() + (t - begin) * size;
      const auto dyv = load_n(d, dy + t * k.channels, k.count);
      const auto sum = step_back<T>(k, dyv, before, before + size, grad.data(), sums);
      store_n(d, hn::MulAdd(k.d, dyv, sum), du + t * k.channels, k.count);
      skip = hn::MulAdd(dyv, load_n(d, k.u + t * k.channels, k.count), skip);
    }
  }
  store_n(d, skip, dd, k.count);
  k.scatter(grad, args.dinitial_state);
}

template <class T>
void backward(const S4dScanBackward& args) {
  using Real = Accumulate<T>;
  const S4dScanForward& f = args.forward;
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  const int64_t batch = f.u.dim(0);
  const int64_t channels = f.u.dim(2);
  const int64_t n = f.parameters.a_imag.dim(1);
  const int64_t vectors = (channels + lanes - 1) / lanes;
  std::vector<ModeGradients<Real>> sums(static_cast<size_t>(batch * vectors),
                                        ModeGradients<Real>(static_cast<size_t>(n * lanes)));
  std::vector<Real> dd(static_cast<size_t>(batch * channels));
  const Threads& threads = f.u.device().threads();
  threads.tasks(batch * vectors, [&](int64_t task) HWY_ATTR {
    const Lane<T> k{f, task / vectors, task % vectors * lanes};
    scan_backward<T>(args, k, sums[static_cast<size_t>(task)], dd.data() + k.entry * channels + k.channel);
  });
  threads.ranges(channels, 16, [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      for (int64_t i = 0; i < n; ++i) {
        std::complex<double> grad_z = 0;
        std::complex<double> grad_gain = 0;
        for (int64_t entry = 0; entry < batch; ++entry) {
          const ModeGradients<Real>& part = sums[static_cast<size_t>(entry * vectors + channel / lanes)];
          const auto at = static_cast<size_t>(i * lanes + channel % lanes);
          grad_z += std::complex<double>(part.z_re[at], part.z_im[at]);
          grad_gain += std::complex<double>(part.gain_re[at], part.gain_im[at]);
        }
        const S4dMode mode = s4d_mode(f.parameters, channel * n + i);
        s4d_finish_mode(mode, 2.0 * grad_gain, grad_z * std::conj(mode.z), channel * n + i, args.grads);
      }
      if (!args.dd.defined()) continue;
      double sum = 0;
      for (int64_t entry = 0; entry < batch; ++entry) sum += dd[static_cast<size_t>(entry * channels + channel)];
      args.dd.data<Real>()[channel] = static_cast<Real>(sum);
    }
  });
}

void s4d_scan_forward(const S4dScanForward& args) {
  visit_floating(args.u.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void s4d_scan_backward(const S4dScanBackward& args) {
  visit_floating(args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(s4d_scan_forward);
HWY_EXPORT(s4d_scan_backward);

namespace cpu {
void s4d_scan_forward(const S4dScanForward& args) { HWY_DYNAMIC_DISPATCH(s4d_scan_forward)(args); }
void s4d_scan_backward(const S4dScanBackward& args) { HWY_DYNAMIC_DISPATCH(s4d_scan_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
