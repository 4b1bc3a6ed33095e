// One position of ssd_scan, for decoding. The state is read and written once, with SIMD vectors along n.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/ssd_step_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/ssd_scan_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

template <class Real>
Real step_size(const SsdStep& args, int64_t row, int64_t head) {
  Real step = args.dt.data<Real>()[row];
  if (args.dt_bias.defined()) step += args.dt_bias.data<Real>()[head];
  if (args.options.dt_softplus) step = std::max(step, Real{0}) + std::log1p(std::exp(-std::abs(step)));
  return std::min(std::max(step, static_cast<Real>(args.options.dt_min)), static_cast<Real>(args.options.dt_max));
}

template <class Real>
void step(const SsdStep& args) {
  const int64_t heads = args.x.dim(1);
  const int64_t p = args.x.dim(2);
  const int64_t groups = args.b.dim(1);
  const int64_t n = args.b.dim(2);
  args.x.device().threads().ranges(
      args.x.dim(0) * heads, rows_per_range(p * n, 8192), [&](int64_t begin, int64_t end) HWY_ATTR {
        const hn::ScalableTag<Real> d;
        for (int64_t row = begin; row < end; ++row) {
          const int64_t head = row % heads;
          const int64_t mixed = (row / heads * groups + head / (heads / groups)) * n;
          const Real* b = args.b.data<Real>() + mixed;
          const Real* c = args.c.data<Real>() + mixed;
          const Real size = step_size<Real>(args, row, head);
          const auto decay = hn::Set(d, std::exp(size * args.a.data<Real>()[head]));
          for (int64_t i = 0; i < p; ++i) {
            const Real x = args.x.data<Real>()[row * p + i];
            const auto push = hn::Set(d, size * x);
            Real* state = args.state.data<Real>() + (row * p + i) * n;
            auto sum = hn::Zero(d);
            for_vectors(d, n, [&](int64_t j, size_t count) HWY_ATTR {
              const auto next = hn::MulAdd(decay, load_n(d, state + j, count), hn::Mul(push, load_n(d, b + j, count)));
              store_n(d, next, state + j, count);
              sum = hn::MulAdd(next, load_n(d, c + j, count), sum);
            });
            const Real skip = args.d.defined() ? args.d.data<Real>()[head] * x : Real{0};
            args.y.data<Real>()[row * p + i] = hn::GetLane(hn::SumOfLanes(d, sum)) + skip;
          }
        }
      });
}

void ssd_step(const SsdStep& args) { args.x.dtype() == DType::f64 ? step<double>(args) : step<float>(args); }

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(ssd_step);

namespace cpu {
void ssd_step(const SsdStep& args) { HWY_DYNAMIC_DISPATCH(ssd_step)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
