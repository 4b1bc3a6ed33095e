// One pass over the elements (elements.cuh).
#include "lamina/ops/elementwise/clamp_kernel.h"
#include "lamina/ops/elementwise/elements.cuh"

namespace lamina::ops::cuda {
namespace {

struct Cut {
  float low, high;
  __device__ float operator()(float x) const {
    const float raised = x < low ? low : x;  // comparisons propagate NaN
    return raised > high ? high : raised;
  }
};
struct CutGradient {
  float low, high;
  __device__ float operator()(float x, float dy) const { return x >= low && x <= high ? dy : 0.0F; }
};

}  // namespace

void clamp_forward(const Tensor& x, double low, double high, const Tensor& y) {
  const Cut cut{static_cast<float>(low), static_cast<float>(high)};
  lamina::cuda::map_elements("clamp", x, y, [&](auto) { return cut; });
}
void clamp_backward(const Tensor& x, const Tensor& dy, double low, double high, const Tensor& dx) {
  const CutGradient cut{static_cast<float>(low), static_cast<float>(high)};
  lamina::cuda::map_gradients("clamp", x, dy, dx, [&](auto) { return cut; });
}

}  // namespace lamina::ops::cuda
