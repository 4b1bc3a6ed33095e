// One pass over the elements (elements.cuh), with one kernel per activation. It is memory-bound: forward reads one
// tensor and writes one; backward reads two and writes one.
#include "lamina/ops/activation/activation.cuh"
#include "lamina/ops/activation/activation_kernel.h"

namespace lamina::ops::cuda {
namespace {

template <class Function>
struct Value {
  __device__ float operator()(float x) const { return Function::both(x).value; }
};
template <class Function>
struct Slope {
  __device__ float operator()(float x, float dy) const { return dy * Function::both(x).slope; }
};

}  // namespace

void activation_forward(const Tensor& x, Activation function, const Tensor& y) {
  lamina::cuda::visit_floating("activation", x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    visit_activation<lamina::cuda::DeviceType<E>>(
        function, [&](auto f) { lamina::cuda::map_elements_of<E>("activation", x, y, Value<decltype(f)>{}); });
  });
}
void activation_backward(const Tensor& x, const Tensor& dy, Activation function, const Tensor& dx) {
  lamina::cuda::visit_floating("activation", x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    visit_activation<lamina::cuda::DeviceType<E>>(
        function, [&](auto f) { lamina::cuda::map_gradients_of<E>("activation", x, dy, dx, Slope<decltype(f)>{}); });
  });
}

}  // namespace lamina::ops::cuda
