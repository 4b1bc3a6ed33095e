#pragma once

// Activations on a GPU, computed in f32 for results of type T. Each activation is a type with two functions: value(x)
// returns f(x), and both(x) returns f(x) and f'(x) with shared subexpressions. Where f' jumps (as at 0 for relu), it is
// the left limit.

#include "lamina/ops/activation/activation.h"
#include "lamina/ops/elementwise/elements.cuh"

namespace lamina::ops::cuda {

struct ValueSlope {
  float value;
  float slope;
};

template <class T>
struct Identity {
  static __device__ ValueSlope both(float x) { return {x, 1.0F}; }
};

template <class T>
struct Relu {
  static __device__ ValueSlope both(float x) { return {x < 0.0F ? 0.0F : x, x > 0.0F ? 1.0F : 0.0F}; }
};

template <class T>
struct SquaredRelu {
  static __device__ ValueSlope both(float x) {
    const float r = x < 0.0F ? 0.0F : x;
    return {r * r, r + r};
  }
};

template <class T>
struct Sigmoid {
  static __device__ ValueSlope both(float x) {
    const lamina::cuda::SigmoidPair s = lamina::cuda::sigmoid_pair<T>(x);
    return {s.at_x, s.at_x * s.at_minus_x};
  }
};

template <class T>
struct Silu {
  static __device__ ValueSlope both(float x) {
    const lamina::cuda::SigmoidPair s = lamina::cuda::sigmoid_pair<T>(x);
    return {x * s.at_x, s.at_x * fmaf(x, s.at_minus_x, 1.0F)};
  }
};

template <class T>
struct Tanh {
  static __device__ ValueSlope both(float x) { return {tanhf(x), lamina::cuda::tanh_slope<T>(x)}; }
};

/// x·Φ(x), with derivative Φ(x) + x·φ(x). With s = |x| and e = exp(−s²/2), the tail is Φ(−s) = e·q(s). q varies slowly
/// and is a polynomial in t = 1/(1 + 0.36·s) with relative error 2^-20 wherever e is nonzero. So Φ keeps its relative
/// precision far below zero, and φ costs nothing extra.
template <class T>
struct Gelu {
  static __device__ ValueSlope both(float x) {
    const float e = lamina::cuda::fast_exp2(-0.5F * lamina::cuda::kLog2E * x * x);
    const float t = lamina::cuda::reciprocal(fmaf(0.36F, fabsf(x), 1.0F));
    float q = 0.047056038F;
    q = fmaf(q, t, -0.17976385F);
    q = fmaf(q, t, 0.18095291F);
    q = fmaf(q, t, 0.026550047F);
    q = fmaf(q, t, 0.13971902F);
    q = fmaf(q, t, 0.14177249F);
    q = fmaf(q, t, 0.14371304F);
    const float tail = e * (q * t);
    const float distribution = x < 0.0F ? tail : 1.0F - tail;
    const float cut = fminf(fmaxf(x, -16.0F), 16.0F);  // e is 0 long before |x| = 16
    return {x * distribution, fmaf(cut, 0.39894228040143268F * e, distribution)};
  }
};
/// Φ(x) = erfc(−x/√2)/2, to full f32 precision.
template <>
struct Gelu<float> {
  static __device__ ValueSlope both(float x) {
    const float distribution = 0.5F * erfcf(-0.70710678118654752F * x);
    const float cut = fminf(fmaxf(x, -16.0F), 16.0F);  // φ is 0 long before |x| = 16
    const float density = 0.39894228040143268F * expf(-0.5F * cut * cut);
    return {x * distribution, fmaf(cut, density, distribution)};
  }
};

/// (1 + tanh u)/2 = σ(2u): x·σ(v), v = 2·√(2/π)·(x + 0.044715·x³).
template <class T>
struct GeluTanh {
  static __device__ ValueSlope both(float x) {
    constexpr float kA = 1.5957691216057307F;  // 2·√(2/π)
    constexpr float kB = 1.5957691216057307F * 0.044715F;
    const float cut = fminf(fmaxf(x, -64.0F), 64.0F);  // σ(v) is 0 or 1 long before |x| = 64
    const float square = cut * cut;
    const lamina::cuda::SigmoidPair s = lamina::cuda::sigmoid_pair<T>(cut * fmaf(kB, square, kA));
    const float dv = fmaf(3.0F * kB, square, kA);
    return {x * s.at_x, s.at_x * fmaf(cut * dv, s.at_minus_x, 1.0F)};
  }
};

__device__ inline ValueSlope exponential_linear(float x, float above, float below) {
  const float m = expm1f(fminf(x, 0.0F));
  return x > 0.0F ? ValueSlope{x * above, above} : ValueSlope{m * below, fmaf(m, below, below)};
}

template <class T>
struct Elu {
  static __device__ ValueSlope both(float x) { return exponential_linear(x, 1.0F, 1.0F); }
};

template <class T>
struct Selu {
  static __device__ ValueSlope both(float x) {
    constexpr float kLambda = 1.0507009873554805F;
    constexpr float kAlpha = 1.6732632423543773F;
    return exponential_linear(x, kLambda, kLambda * kAlpha);
  }
};

/// Calls fn(Function<T>{}) with the type above that implements `activation`.
template <class T, class F>
void visit_activation(Activation activation, const F& fn) {
  switch (activation) {
    case Activation::relu: return fn(Relu<T>{});
    case Activation::gelu: return fn(Gelu<T>{});
    case Activation::gelu_tanh: return fn(GeluTanh<T>{});
    case Activation::silu: return fn(Silu<T>{});
    case Activation::elu: return fn(Elu<T>{});
    case Activation::selu: return fn(Selu<T>{});
    case Activation::relu2: return fn(SquaredRelu<T>{});
    case Activation::sigmoid: return fn(Sigmoid<T>{});
    case Activation::tanh: return fn(Tanh<T>{});
    case Activation::none: break;
  }
  return fn(Identity<T>{});
}

/// Selects the activation at run time. The branch is uniform: all threads take the same path.
__device__ inline ValueSlope activate(Activation activation, float x) {
  switch (activation) {
    case Activation::relu: return Relu<float>::both(x);
    case Activation::gelu: return Gelu<float>::both(x);
    case Activation::gelu_tanh: return GeluTanh<float>::both(x);
    case Activation::silu: return Silu<float>::both(x);
    case Activation::elu: return Elu<float>::both(x);
    case Activation::selu: return Selu<float>::both(x);
    case Activation::relu2: return SquaredRelu<float>::both(x);
    case Activation::sigmoid: return Sigmoid<float>::both(x);
    case Activation::tanh: return Tanh<float>::both(x);
    case Activation::none: break;
  }
  return Identity<float>::both(x);
}
__device__ inline float activation_value(Activation activation, float x) { return activate(activation, x).value; }

}  // namespace lamina::ops::cuda
