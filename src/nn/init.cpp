#include "lamina/nn/init.h"

#include <cmath>

#include "lamina/base/torch_random.h"

namespace lamina::nn {
namespace {

template <class Fill>
void overwrite(const char* what, const Tensor& tensor, const Fill& fill) {
  LAMINA_CHECK(tensor.defined() && is_floating(tensor.dtype()), what, ": needs a floating tensor");
  if (tensor.is_meta()) return;
  Tensor values = Tensor::empty(tensor.shape(), tensor.dtype(), Device::cpu(1));
  visit_floating(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill(std::span<T>(values.data<T>(), static_cast<size_t>(values.numel())));
  });
  tensor.detach().copy_(values.to(tensor.device()));
}

}  // namespace

void init_uniform(const Tensor& tensor, double low, double high, uint64_t seed) {
  LAMINA_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, "init_uniform: the range is [", low, ", ",
               high, "]; expected finite numbers with low <= high");
  overwrite("init_uniform", tensor, [&](auto values) {
    TorchGenerator generator(seed);
    torch_uniform(generator, values, low, high);
  });
}

void init_normal(const Tensor& tensor, double mean, double deviation, uint64_t seed) {
  LAMINA_CHECK(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0, "init_normal: mean ", mean,
               " and deviation ", deviation, "; expected finite numbers and a deviation >= 0");
  overwrite("init_normal", tensor, [&](auto values) {
    TorchGenerator generator(seed);
    torch_normal(generator, values, mean, deviation);
  });
}

}  // namespace lamina::nn
