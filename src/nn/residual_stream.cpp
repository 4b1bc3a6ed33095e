#include "lamina/nn/residual_stream.h"

#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {
namespace {

/// Calls project(x, branch) → (h, y), replaces the residual stream by h, and returns y.
template <class F>
Tensor move_on(ResidualStream& stream, const F& project) {
  auto [h, y] = project(stream.x, stream.branch);
  stream = {h, {}};
  return y;
}

}  // namespace

const Tensor& ResidualStream::value() {
  if (branch.defined()) x = ops::add(x, ops::sum_of_parts(branch, x));
  branch = Tensor();
  return x;
}

Tensor ResidualStream::take(const ops::SublayerOutput& step) {
  *this = {step.h, {}};
  return step.parts.dim(0) == 1 ? step.parts.reshape(x.shape()) : step.parts;
}

Tensor ResidualStream::normed(const NormLayer& norm) {
  if (!branch.defined()) return norm.forward(x);
  auto [h, y] = norm.forward_add(ops::sum_of_parts(branch, x), x);
  *this = {h, {}};
  return y;
}

Tensor ResidualStream::normed_linear(const NormLayer& norm, const ops::LinearWeight& weight, const Tensor& bias,
                                     ops::Activation activation) {
  return move_on(*this, [&](const Tensor& from, const Tensor& residual) {
    return ops::norm_linear(from, residual, norm.row_norm(), weight, bias, activation);
  });
}

Tensor ResidualStream::normed_gated_linear(const NormLayer& norm, const ops::LinearWeight& weight, const Tensor& bias,
                                           ops::Gate gate, const ops::GateOptions& options) {
  return move_on(*this, [&](const Tensor& from, const Tensor& residual) {
    return ops::norm_gated_linear(from, residual, norm.row_norm(), weight, bias, gate, options);
  });
}

}  // namespace lamina::nn
