#pragma once

// One discretized complex mode of one channel, in f64: the device version of s4d_modes.h. Its formulas are in s4d.h.

#include "lamina/ops/ssm/s4d.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

struct Complex {
  double re = 0, im = 0;

  friend __device__ Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
  friend __device__ Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
  friend __device__ Complex operator*(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  friend __device__ Complex operator*(double a, Complex b) { return {a * b.re, a * b.im}; }
  friend __device__ Complex operator/(Complex a, Complex b) {
    const double square = b.re * b.re + b.im * b.im;
    return (1 / square) * (a * Complex{b.re, -b.im});
  }
};
__device__ inline Complex conj(Complex a) { return {a.re, -a.im}; }
__device__ inline Complex complex_exp(Complex w) {
  const double size = exp(w.re);
  double sine = 0;
  double cosine = 0;
  sincos(w.im, &sine, &cosine);
  return {size * cosine, size * sine};
}
/// exp(w) − 1 without cancellation near w = 0.
__device__ inline Complex complex_expm1(Complex w) {
  const double half = sin(w.im / 2);
  return {expm1(w.re) * cos(w.im) - 2 * half * half, exp(w.re) * sin(w.im)};
}

/// Pointers to the parameters, or to their gradients.
struct S4dPointers {
  double *log_dt, *a_real_log, *a_imag, *c;
  int64_t n;

  explicit S4dPointers(const S4dParameters& p)
      : log_dt(p.log_dt.data<double>()),
        a_real_log(p.a_real_log.data<double>()),
        a_imag(p.a_imag.data<double>()),
        c(p.c.data<double>()),
        n(p.a_imag.dim(1)) {}
};

struct S4dDeviceMode {
  Complex a, c;
  Complex w;  ///< Δ a
  Complex z;  ///< exp(w)
  Complex f;  ///< (exp(w) − 1) / w
  double dt;

  /// Discretizes mode `index` of [channels · n].
  __device__ S4dDeviceMode(const S4dPointers& p, int64_t index) {
    dt = exp(p.log_dt[index / p.n]);
    a = {-exp(p.a_real_log[index]), p.a_imag[index]};
    c = {p.c[2 * index], p.c[2 * index + 1]};
    w = dt * a;
    z = complex_exp(w);
    f = w.re == 0 && w.im == 0 ? Complex{1, 0} : complex_expm1(w) / w;
  }
  __device__ Complex gain() const { return dt * (c * f); }  ///< c'
  __device__ Complex power(double l) const { return complex_exp(l * w); }
  /// f'(w) of f(w) = (exp(w) − 1) / w; near zero by the series Σ (k + 1) w^k / (k + 2)!.
  __device__ Complex slope() const {
    if (w.re * w.re + w.im * w.im > 0.0625) return (z - f) / w;
    Complex sum;
    Complex power{1, 0};
    double factorial = 2;
    for (int k = 0; k < 12; ++k) {
      sum = sum + ((k + 1) / factorial) * power;
      power = power * w;
      factorial *= k + 3;
    }
    return sum;
  }
  /// Converts g(c') and g(w) to the gradients of the parameters of mode `index`. Returns its contribution to the
  /// gradient of log_dt, which the modes of a channel share.
  __device__ double finish(Complex grad_gain, Complex grad_w, int64_t index, const S4dPointers& grads) const {
    const Complex grad_c = grad_gain * conj(dt * f);
    const Complex grad_hold = grad_gain * conj(c);  // gradient of φ = Δ f(w)
    const Complex grad_a = dt * grad_w + grad_hold * conj(dt * dt * slope());
    grads.c[2 * index] = grad_c.re;
    grads.c[2 * index + 1] = grad_c.im;
    grads.a_real_log[index] = grad_a.re * a.re;
    grads.a_imag[index] = grad_a.im;
    return (grad_w * conj(a) + grad_hold * conj(z)).re * dt;
  }
};

__device__ inline double warp_sum(double value) {
  for (int step = lamina::cuda::kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(lamina::cuda::kAllLanes, value, step);
  }
  return value;
}

}  // namespace lamina::ops::cuda
