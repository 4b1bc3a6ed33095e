#include "lamina/ops/dropout/dropout.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/dropout/dropout_kernel.h"
#include "lamina/ops/launch.h"

namespace lamina::ops {
namespace {

Tensor apply(const Tensor& x, double p, const RandomKey& key, int64_t first) {
  if (p == 1.0) return Tensor::zeros(x.shape(), x.dtype(), x.device());
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{x.numel(), 2 * x.nbytes()}), dropout_apply, x, dropout_threshold(p), 1.0 / (1.0 - p),
                key, first, y);
  return y;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, const RandomKey& key, int64_t first) {
  check_floating("dropout", "x", x);
  LAMINA_CHECK(p >= 0.0 && p <= 1.0, "dropout: p is ", p, "; expected a probability between 0 and 1");
  LAMINA_CHECK(first >= 0, "dropout: first is ", first, "; expected a position >= 0");
  if (p == 0.0) return x;
  Tensor y = apply(x.detach().contiguous(), p, key, first);
  record("dropout", {x}, {y}, {}, [p, key, first](Backward& b) { b.add(0, apply(b.grad(0), p, key, first)); });
  return y;
}

}  // namespace lamina::ops
