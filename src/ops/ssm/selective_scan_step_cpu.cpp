// One position of the scan, for decoding. The state is read and written once. SIMD vectors run over n, the contiguous
// dimension of the state and of a.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/selective_scan_step_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/selective_scan_kernel.h"
#include "lamina/ops/ssm/softplus-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

template <class Real>
struct StepPointers {
  const Real *u, *delta, *z, *a, *b, *c, *d, *bias;
  Real *state, *y;

  explicit StepPointers(const SelectiveScanStep& args)
      : u(args.u.data<Real>()),
        delta(args.delta.data<Real>()),
        z(args.z.defined() ? args.z.data<Real>() : nullptr),
        a(args.a.data<Real>()),
        b(args.b.data<Real>()),
        c(args.c.data<Real>()),
        d(args.d.defined() ? args.d.data<Real>() : nullptr),
        bias(args.delta_bias.defined() ? args.delta_bias.data<Real>() : nullptr),
        state(args.state.data<Real>()),
        y(args.y.data<Real>()) {}
};

/// Channels [begin, end) of one batch entry.
template <class Real>
void step_channels(const SelectiveScanStep& args, const StepPointers<Real>& p, int64_t entry, int64_t begin,
                   int64_t end) {
  const hn::ScalableTag<Real> d;
  const int64_t channels = args.u.dim(1);
  const int64_t n = args.a.dim(1);
  const int64_t row = entry * channels;
  std::vector<Real> steps(static_cast<size_t>(end - begin));
  for_vectors(d, end - begin, [&](int64_t i, size_t count) HWY_ATTR {
    auto step = load_n(d, p.delta + row + begin + i, count);
    if (p.bias != nullptr) step = hn::Add(step, load_n(d, p.bias + begin + i, count));
    if (args.delta_softplus) step = softplus(d, step);
    store_n(d, step, steps.data() + i, count);
  });
  for (int64_t channel = begin; channel < end; ++channel) {
    const Real u = p.u[row + channel];
    const auto step = hn::Set(d, steps[static_cast<size_t>(channel - begin)]);
    const auto push = hn::Set(d, steps[static_cast<size_t>(channel - begin)] * u);
    Real* state = p.state + (row + channel) * n;
    auto sum = hn::Zero(d);
    for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
      const auto decay = exp(d, hn::Mul(step, load_n(d, p.a + channel * n + i, count)));
      const auto next =
          hn::MulAdd(decay, load_n(d, state + i, count), hn::Mul(push, load_n(d, p.b + entry * n + i, count)));
      store_n(d, next, state + i, count);
      sum = hn::MulAdd(next, load_n(d, p.c + entry * n + i, count), sum);
    });
    p.y[row + channel] = hn::GetLane(hn::SumOfLanes(d, sum)) + (p.d != nullptr ? p.d[channel] * u : Real{0});
  }
  if (p.z == nullptr) return;
  for_vectors(d, end - begin, [&](int64_t i, size_t count) HWY_ATTR {
    const auto z = load_n(d, p.z + row + begin + i, count);
    Real* y = p.y + row + begin + i;
    store_n(d, hn::Mul(load_n(d, y, count), hn::Mul(z, sigmoid(d, z))), y, count);
  });
}

template <class Real>
void step(const SelectiveScanStep& args) {
  const int64_t channels = args.u.dim(1);
  const int64_t width = rows_per_range(args.a.dim(1), 4096);
  const int64_t blocks = (channels + width - 1) / width;
  const StepPointers<Real> pointers(args);
  args.u.device().threads().tasks(args.u.dim(0) * blocks, [&](int64_t task) HWY_ATTR {
    const int64_t begin = task % blocks * width;
    step_channels<Real>(args, pointers, task / blocks, begin, std::min(channels, begin + width));
  });
}

void selective_scan_step(const SelectiveScanStep& args) {
  args.u.dtype() == DType::f64 ? step<double>(args) : step<float>(args);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(selective_scan_step);

namespace cpu {
void selective_scan_step(const SelectiveScanStep& args) { HWY_DYNAMIC_DISPATCH(selective_scan_step)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
