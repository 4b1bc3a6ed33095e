#include "lamina/nn/mixers/token_shift.h"

#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/ssm/causal_conv1d.h"

namespace lamina::nn {
namespace {

Tensor last_token(const Tensor& x, const StateCache* states) {
  return states == nullptr ? Tensor() : states->conv(x.dtype());
}

}  // namespace

Tensor token_shift(const Tensor& x, const Tensor& mix, const StateCache* states) {
  const Tensor now = mix.reshape({mix.numel(), 1});
  const Tensor before = ops::sub(Tensor::full(now.shape(), 1.0, mix.dtype(), mix.device()), now);
  return ops::causal_conv1d(x, ops::concat({before, now}, 1), {}, last_token(x, states));
}

void keep_last_token(const Tensor& x, StateCache* states) {
  if (states != nullptr) states->keep_conv(ops::causal_conv1d_state(x, 2, last_token(x, states)));
}

}  // namespace lamina::nn
