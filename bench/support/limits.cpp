// The machine's two limits. The triad uses streaming stores: plain stores read each cache line before overwriting it,
// which would put the limit a third too low.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "support/limits.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <dnnl.h>
#include <omp.h>

#include <vector>

#include "lamina/tensor/tensor.h"
#include "support/limits.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void triad(float* a, const float* b, const float* c, size_t n) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 3.0F);
  for (size_t i = 0; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::Stream(hn::MulAdd(factor, hn::Load(d, c + i), hn::Load(d, b + i)), d, a + i);
  }
}

}  // namespace lamina::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::bench {
HWY_EXPORT(triad);

double measure_gemm_peak(const Context& context) {
  constexpr int64_t kSize = 2048;
  const std::vector<float> a(kSize * kSize, 0.5F);
  const std::vector<float> b(kSize * kSize, 0.25F);
  std::vector<float> c(kSize * kSize);
  const int before = omp_get_max_threads();
  omp_set_num_threads(context.device().threads().count());
  const double time = context.seconds([&] {
    dnnl_sgemm('N', 'N', kSize, kSize, kSize, 1.0F, a.data(), kSize, b.data(), kSize, 0.0F, c.data(), kSize);
  });
  omp_set_num_threads(before);
  return 2.0 * kSize * kSize * kSize / time * 1e-9;
}

constexpr int64_t kTriadCount = int64_t{1} << 26;

Triad::Triad(const Device& device)
    : a_(Tensor::zeros({kTriadCount}, DType::f32, device)),
      b_(Tensor::full({kTriadCount}, 1.0, DType::f32, device)),
      c_(Tensor::full({kTriadCount}, 2.0, DType::f32, device)) {}

void Triad::operator()() const {
  a_.device().threads().ranges(kTriadCount, 1 << 20, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(triad)
    (a_.data<float>() + begin, b_.data<float>() + begin, c_.data<float>() + begin, static_cast<size_t>(end - begin));
  });
}

double Triad::bytes() { return 3.0 * kTriadCount * sizeof(float); }

}  // namespace lamina::bench
#endif
