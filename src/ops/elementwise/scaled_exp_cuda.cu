// One pass over the elements (elements.cuh).
#include "lamina/ops/elementwise/elements.cuh"
#include "lamina/ops/elementwise/scaled_exp_kernel.h"

namespace lamina::ops::cuda {
namespace {

template <class T>
struct ScaledExp {
  float factor;
  __device__ float operator()(float x) const { return factor * lamina::cuda::exp_for<T>(x); }
  __device__ float operator()(float x, float dy) const { return dy * (factor * lamina::cuda::exp_for<T>(x)); }
};

}  // namespace

void scaled_exp_forward(const Tensor& x, double factor, const Tensor& y) {
  lamina::cuda::map_elements("scaled_exp", x, y, [&](auto tag) {
    return ScaledExp<typename decltype(tag)::type>{static_cast<float>(factor)};
  });
}
void scaled_exp_backward(const Tensor& x, const Tensor& dy, double factor, const Tensor& dx) {
  lamina::cuda::map_gradients("scaled_exp", x, dy, dx, [&](auto tag) {
    return ScaledExp<typename decltype(tag)::type>{static_cast<float>(factor)};
  });
}

}  // namespace lamina::ops::cuda
