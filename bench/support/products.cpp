#include "support/products.h"

#include <dnnl.h>

#include <random>

namespace lamina::bench {
namespace {

void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, const float* b, float beta, float* c) {
  dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0F, a, ta ? m : k, b, tb ? k : n, beta, c, n);
}

}  // namespace

std::vector<float> random_floats(int64_t count, uint32_t seed, float low, float high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

Tensor random_tensor(const Shape& shape, const Device& device, uint32_t seed, float low, float high) {
  return Tensor::from(random_floats(shape.numel(), seed, low, high), shape, device);
}

PlainProducts::PlainProducts(int64_t r, int64_t i, int64_t o)
    : rows(r),
      in(i),
      out(o),
      x(random_floats(r * i, 1)),
      w(random_floats(o * i, 2)),
      y(random_floats(r * o, 3)),
      dx(static_cast<size_t>(r * i)),
      dw(static_cast<size_t>(o * i)) {}

void PlainProducts::forward() { sgemm(false, true, rows, out, in, x.data(), w.data(), 0, y.data()); }

void PlainProducts::backward() {
  sgemm(false, false, rows, in, out, y.data(), w.data(), 0, dx.data());
  sgemm(true, false, out, in, rows, y.data(), x.data(), 1, dw.data());
}

}  // namespace lamina::bench
