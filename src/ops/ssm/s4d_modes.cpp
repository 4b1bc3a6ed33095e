#include "lamina/ops/ssm/s4d_modes.h"

#include <cmath>

namespace lamina::ops {
namespace {

using Complex = std::complex<double>;

/// exp(w) − 1 without cancellation near w = 0.
Complex expm1(Complex w) {
  const double half = std::sin(w.imag() / 2);
  return {std::expm1(w.real()) * std::cos(w.imag()) - 2 * half * half, std::exp(w.real()) * std::sin(w.imag())};
}

/// f'(w) for f(w) = (exp(w) − 1) / w; near zero by the series Σ (k + 1) w^k / (k + 2)!.
Complex slope(Complex w, Complex z, Complex f) {
  if (std::abs(w) > 0.25) return (z - f) / w;
  Complex sum = 0;
  Complex power = 1;
  double factorial = 2;
  for (int k = 0; k < 12; ++k) {
    sum += power * ((k + 1) / factorial);
    power *= w;
    factorial *= k + 3;
  }
  return sum;
}

}  // namespace

S4dMode s4d_mode(const S4dParameters& parameters, int64_t index) {
  const int64_t n = parameters.a_imag.dim(1);
  const double* c = parameters.c.data<double>() + 2 * index;
  S4dMode mode;
  mode.dt = std::exp(parameters.log_dt.data<double>()[index / n]);
  mode.a = {-std::exp(parameters.a_real_log.data<double>()[index]), parameters.a_imag.data<double>()[index]};
  mode.c = {c[0], c[1]};
  mode.w = mode.dt * mode.a;
  mode.z = std::exp(mode.w);
  mode.f = mode.w == 0.0 ? Complex{1} : expm1(mode.w) / mode.w;
  return mode;
}

void s4d_finish_mode(const S4dMode& mode, Complex grad_gain, Complex grad_w, int64_t index,
                     const S4dParameters& grads) {
  const int64_t n = grads.a_imag.dim(1);
  const Complex grad_c = grad_gain * std::conj(mode.dt * mode.f);
  const Complex grad_hold = grad_gain * std::conj(mode.c);  // gradient of φ = Δ f(w)
  const Complex bend = mode.dt * mode.dt * slope(mode.w, mode.z, mode.f);
  const Complex grad_a = mode.dt * grad_w + grad_hold * std::conj(bend);
  const double grad_dt = (grad_w * std::conj(mode.a) + grad_hold * std::conj(mode.z)).real();
  double* c = grads.c.data<double>() + 2 * index;
  c[0] = grad_c.real();
  c[1] = grad_c.imag();
  grads.a_real_log.data<double>()[index] = grad_a.real() * mode.a.real();
  grads.a_imag.data<double>()[index] = grad_a.imag();
  grads.log_dt.data<double>()[index / n] += grad_dt * mode.dt;
}

}  // namespace lamina::ops
