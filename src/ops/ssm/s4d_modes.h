#pragma once

#include <complex>

#include "lamina/ops/ssm/s4d.h"

namespace lamina::ops {

/// One discretized complex mode of one channel; the formulas are in s4d.h.
struct S4dMode {
  std::complex<double> a, c;
  std::complex<double> w;  ///< Δ a
  std::complex<double> z;  ///< exp(w)
  std::complex<double> f;  ///< (exp(w) − 1) / w
  double dt;

  std::complex<double> gain() const { return c * dt * f; }  ///< c'
  std::complex<double> power(double l) const { return std::exp(w * l); }
};

/// Discretizes mode `index` of [channels · n].
S4dMode s4d_mode(const S4dParameters& parameters, int64_t index);

/// Converts g(c') and g(w) to the gradients of the parameters of mode `index`. Adds to dΔ, which the modes of a channel
/// share.
void s4d_finish_mode(const S4dMode& mode, std::complex<double> grad_gain, std::complex<double> grad_w, int64_t index,
                     const S4dParameters& grads);

}  // namespace lamina::ops
