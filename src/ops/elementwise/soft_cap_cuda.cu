// One pass over the elements (elements.cuh).
#include "lamina/ops/elementwise/elements.cuh"
#include "lamina/ops/elementwise/soft_cap_kernel.h"

namespace lamina::ops::cuda {
namespace {

template <class T>
struct SoftCap {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
  __device__ float operator()(float x, float dy) const { return dy * lamina::cuda::tanh_slope<T>(x / cap); }
};

}  // namespace

void soft_cap_forward(const Tensor& x, double cap, const Tensor& y) {
  lamina::cuda::map_elements("soft_cap", x, y,
                             [&](auto tag) { return SoftCap<typename decltype(tag)::type>{static_cast<float>(cap)}; });
}
void soft_cap_backward(const Tensor& x, const Tensor& dy, double cap, const Tensor& dx) {
  lamina::cuda::map_gradients("soft_cap", x, dy, dx,
                              [&](auto tag) { return SoftCap<typename decltype(tag)::type>{static_cast<float>(cap)}; });
}

}  // namespace lamina::ops::cuda
