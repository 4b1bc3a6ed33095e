#include "lamina/nn/stream.h"

#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {
namespace {

/// y of project(x, residual), with the stream moved on to its h.
template <class F>
Tensor move_on(Stream& stream, const F& project) {
  const bool adds = stream.branch.defined();
  auto [h, y] = project(adds ? stream.branch : stream.x, adds ? stream.x : Tensor());
  stream = {h, {}};
  return y;
}

}  // namespace

const Tensor& Stream::value() {
  if (branch.defined()) x = ops::add(x, branch);
  branch = Tensor();
  return x;
}

Tensor Stream::normed(const NormLayer& norm) {
  if (!branch.defined()) return norm.forward(x);
  auto [h, y] = norm.forward_add(branch, x);
  *this = {h, {}};
  return y;
}

Tensor Stream::normed_linear(const NormLayer& norm, const Tensor& weight, const Tensor& bias,
                             ops::Activation activation) {
  return move_on(*this, [&](const Tensor& added, const Tensor& residual) {
    return ops::norm_linear(added, residual, norm.row_norm(), weight, bias, activation);
  });
}

Tensor Stream::normed_gated_linear(const NormLayer& norm, const Tensor& weight, const Tensor& bias, ops::Gate gate,
                                   const ops::GateOptions& options) {
  return move_on(*this, [&](const Tensor& added, const Tensor& residual) {
    return ops::norm_gated_linear(added, residual, norm.row_norm(), weight, bias, gate, options);
  });
}

}  // namespace lamina::nn
