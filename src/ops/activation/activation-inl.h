// Maps an Activation to its SIMD implementation. Used by the activation kernel and by kernels that fuse an activation.
#if defined(LAMINA_OPS_ACTIVATION_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ACTIVATION_ACTIVATION_INL_H_
#undef LAMINA_OPS_ACTIVATION_ACTIVATION_INL_H_
#else
#define LAMINA_OPS_ACTIVATION_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>

#include "lamina/base/simd_activation-inl.h"
#include "lamina/ops/activation/activation.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

/// Calls fn(Function{}) with the type of base/simd_activation-inl.h that implements `activation`.
template <class F>
decltype(auto) visit_activation(Activation activation, F&& fn) {
  namespace simd = lamina::HWY_NAMESPACE;
  switch (activation) {
    case Activation::relu: return fn(simd::Relu{});
    case Activation::gelu: return fn(simd::Gelu{});
    case Activation::gelu_tanh: return fn(simd::GeluTanh{});
    case Activation::silu: return fn(simd::Silu{});
    case Activation::elu: return fn(simd::Elu{});
    case Activation::selu: return fn(simd::Selu{});
    case Activation::relu2: return fn(simd::SquaredRelu{});
    case Activation::sigmoid: return fn(simd::Sigmoid{});
    case Activation::tanh: return fn(simd::Tanh{});
    case Activation::none: break;
  }
  return fn(simd::Identity{});
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
