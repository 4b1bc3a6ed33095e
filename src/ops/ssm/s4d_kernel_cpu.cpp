// A task is one channel. SIMD vectors run along the kernel: four vectors of consecutive powers z^l are advanced by
// multiplying them with z^(4 lanes). After every 32 steps the powers restart from one computed in f64, so that rounding
// errors do not accumulate. Backward sums dK·z^l and l·dK·z^l in the same loop.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/s4d_kernel_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <complex>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/s4d_kernel.h"
#include "lamina/ops/ssm/s4d_modes.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

constexpr int kChains = 4;
constexpr int64_t kSteps = 32;

/// Number of powers of a mode that matter. For larger l, |z^l| is below rounding, and computing it would only produce
/// slow denormals.
template <class Real>
int64_t reach(const S4dMode& mode, int64_t length) {
  const double smallest = sizeof(Real) == 4 ? -69.0 : -690.0;  // log of 1e-30 and 1e-300
  const double positions = smallest / mode.w.real();
  return positions < static_cast<double>(length) ? static_cast<int64_t>(positions) + 1 : length;
}

/// The powers z^0 … z^(4 lanes) of one mode, as vectors.
template <class Real>
struct NearPowers {
  using D = hn::ScalableTag<Real>;
  hn::Vec<D> re[kChains], im[kChains];
  std::complex<double> stride;

  explicit NearPowers(const S4dMode& mode) {
    const D d;
    const size_t lanes = hn::Lanes(d);
    HWY_ALIGN Real real[hn::MaxLanes(d)];
    HWY_ALIGN Real imaginary[hn::MaxLanes(d)];
    double power_re = 1;
    double power_im = 0;
    for (int chain = 0; chain < kChains; ++chain) {
      for (size_t i = 0; i < lanes; ++i) {
        real[i] = static_cast<Real>(power_re);
        imaginary[i] = static_cast<Real>(power_im);
        const double next = power_re * mode.z.real() - power_im * mode.z.imag();
        power_im = power_re * mode.z.imag() + power_im * mode.z.real();
        power_re = next;
      }
      re[chain] = hn::Load(d, real);
      im[chain] = hn::Load(d, imaginary);
    }
    stride = {power_re, power_im};
  }
};

/// The powers of one mode from a given position on.
template <class Real>
struct Powers {
  using D = hn::ScalableTag<Real>;
  hn::Vec<D> re[kChains], im[kChains];
  hn::Vec<D> step_re, step_im;

  /// Starts at power `first`: multiplies it with the near powers.
  Powers(const NearPowers<Real>& near, std::complex<double> first) {
    const D d;
    step_re = hn::Set(d, static_cast<Real>(first.real()));
    step_im = hn::Set(d, static_cast<Real>(first.imag()));
#pragma GCC unroll 4
    for (int chain = 0; chain < kChains; ++chain) {
      re[chain] = near.re[chain];
      im[chain] = near.im[chain];
      advance(chain);
    }
    step_re = hn::Set(d, static_cast<Real>(near.stride.real()));
    step_im = hn::Set(d, static_cast<Real>(near.stride.imag()));
  }
  HWY_INLINE void advance(int chain) {
    const auto next = hn::NegMulAdd(im[chain], step_im, hn::Mul(re[chain], step_re));
    im[chain] = hn::MulAdd(re[chain], step_im, hn::Mul(im[chain], step_re));
    re[chain] = next;
  }
};

template <class T>
void forward(const S4dKernelForward& args) {
  using Real = Accumulate<T>;
  const int64_t length = args.kernel.dim(1);
  const int64_t n = args.parameters.a_imag.dim(1);
  args.kernel.device().threads().tasks(length == 0 ? 0 : args.kernel.dim(0), [&](int64_t channel) HWY_ATTR {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const int64_t stride = kChains * lanes;
    const int64_t block = kSteps * stride;
    std::vector<Real> sums(static_cast<size_t>((length + stride - 1) / stride * stride), Real{0});
    for (int64_t i = 0; i < n; ++i) {
      const S4dMode mode = s4d_mode(args.parameters, channel * n + i);
      const NearPowers<Real> near(mode);
      const int64_t needed = reach<Real>(mode, length);
      for (int64_t start = 0; start < needed; start += block) {
        Powers<Real> powers(near, 2.0 * mode.gain() * mode.power(static_cast<double>(start)));
        const int64_t end = std::min(start + block, needed);
        for (int64_t l = start; l < end; l += stride) {
#pragma GCC unroll 4
          for (int chain = 0; chain < kChains; ++chain) {
            Real* at = sums.data() + l + chain * lanes;
            store(d, hn::Add(load(d, at), powers.re[chain]), at);
            powers.advance(chain);
          }
        }
      }
    }
    T* out = args.kernel.data<T>() + channel * length;
    for_vectors(d, length, [&](int64_t i, size_t count) HWY_ATTR {
      store_n(d, load_n(d, sums.data() + i, count), out + i, count);
    });
  });
}

/// Sums Σ dK z^l and Σ l dK z^l of one mode. `weighted` is dK times the position within its block; dk and weighted are
/// padded to whole blocks.
template <class Real>
void power_sums(const S4dMode& mode, const std::vector<Real>& dk, const std::vector<Real>& weighted,
                std::complex<double>& plain, std::complex<double>& by_position) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t stride = kChains * lanes;
  const NearPowers<Real> near(mode);
  const int64_t needed = reach<Real>(mode, static_cast<int64_t>(dk.size()));
  for (int64_t start = 0; start < needed; start += kSteps * stride) {
    Powers<Real> powers(near, mode.power(static_cast<double>(start)));
    auto re = hn::Zero(d);
    auto im = hn::Zero(d);
    auto local_re = hn::Zero(d);
    auto local_im = hn::Zero(d);
    const int64_t end = std::min(start + kSteps * stride, needed);
    for (int64_t l = start; l < end; l += stride) {
#pragma GCC unroll 4
      for (int chain = 0; chain < kChains; ++chain) {
        const auto g = load(d, dk.data() + l + chain * lanes);
        const auto lg = load(d, weighted.data() + l + chain * lanes);
        re = hn::MulAdd(g, powers.re[chain], re);
        im = hn::MulAdd(g, powers.im[chain], im);
        local_re = hn::MulAdd(lg, powers.re[chain], local_re);
        local_im = hn::MulAdd(lg, powers.im[chain], local_im);
        powers.advance(chain);
      }
    }
    const auto total = [&](auto v) HWY_ATTR { return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, v))); };
    const std::complex<double> sum(total(re), total(im));
    plain += sum;
    by_position += std::complex<double>(total(local_re), total(local_im)) + static_cast<double>(start) * sum;
  }
}

template <class T>
void backward(const S4dKernelBackward& args) {
  using Real = Accumulate<T>;
  const int64_t length = args.dkernel.dim(1);
  const int64_t n = args.parameters.a_imag.dim(1);
  args.dkernel.device().threads().tasks(args.dkernel.dim(0), [&](int64_t channel) HWY_ATTR {
    const ComputeTag<T> d;
    const int64_t stride = kChains * static_cast<int64_t>(hn::Lanes(d));
    std::vector<Real> dk(static_cast<size_t>((length + stride - 1) / stride * stride), Real{0});
    std::vector<Real> weighted(dk.size(), Real{0});
    const T* from = args.dkernel.data<T>() + channel * length;
    for (int64_t l = 0; l < length; ++l) {
      dk[static_cast<size_t>(l)] = convert<Real>(from[l]);
      weighted[static_cast<size_t>(l)] = convert<Real>(from[l]) * static_cast<Real>(l % (kSteps * stride));
    }
    for (int64_t i = 0; i < n; ++i) {
      const S4dMode mode = s4d_mode(args.parameters, channel * n + i);
      std::complex<double> plain = 0;
      std::complex<double> by_position = 0;
      power_sums(mode, dk, weighted, plain, by_position);
      s4d_finish_mode(mode, 2.0 * std::conj(plain), 2.0 * std::conj(mode.gain() * by_position), channel * n + i,
                      args.grads);
    }
  });
}

void s4d_kernel_forward(const S4dKernelForward& args) {
  visit_floating(args.kernel.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void s4d_kernel_backward(const S4dKernelBackward& args) {
  visit_floating(args.dkernel.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(s4d_kernel_forward);
HWY_EXPORT(s4d_kernel_backward);

namespace cpu {
void s4d_kernel_forward(const S4dKernelForward& args) { HWY_DYNAMIC_DISPATCH(s4d_kernel_forward)(args); }
void s4d_kernel_backward(const S4dKernelBackward& args) { HWY_DYNAMIC_DISPATCH(s4d_kernel_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
