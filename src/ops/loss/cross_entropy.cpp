#include "lamina/ops/loss/cross_entropy.h"

#include <utility>

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/loss/cross_entropy_checks.h"
#include "lamina/ops/loss/cross_entropy_kernel.h"

namespace lamina::ops {

void check_cross_entropy_options(const char* op, const CrossEntropyOptions& options) {
  check_finite(op, "label_smoothing", options.label_smoothing);
  check_finite(op, "z_loss", options.z_loss);
  check_finite(op, "soft_cap", options.soft_cap);
  check_finite(op, "logit_scale", options.logit_scale);
  LAMINA_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, op, ": label_smoothing is ",
               options.label_smoothing, "; expected a number between 0 and 1");
  LAMINA_CHECK(options.z_loss >= 0, op, ": z_loss is ", options.z_loss, "; expected a weight >= 0");
  LAMINA_CHECK(options.soft_cap >= 0, op, ": soft_cap is ", options.soft_cap, "; expected a bound > 0, or 0 for none");
}

void check_targets(const char* op, const Tensor& targets, const Tensor& rows_of) {
  Shape expected;
  for (int axis = 0; axis < rows_of.rank() - 1; ++axis) expected.push_back(rows_of.dim(axis));
  check_dtype(op, "targets", targets, DType::i64);
  check_shape(op, "targets", targets, expected);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  check_floating("cross_entropy", "logits", logits);
  check_rank_at_least("cross_entropy", "logits", logits, 1);
  check_targets("cross_entropy", targets, logits);
  check_same_device("cross_entropy", {logits, targets});
  check_cross_entropy_options("cross_entropy", options);
  const int64_t rows = targets.numel();
  const DType type = accumulation_type(logits.dtype());
  CrossEntropyForward args;
  args.logits = logits.detach().contiguous().reshape({rows, logits.dim(-1)});
  args.targets = targets.contiguous().reshape({rows});
  args.options = options;
  args.losses = Tensor::empty({rows}, type, logits.device());
  args.lse = Tensor::empty({rows}, type, logits.device());
  if (options.reduction != Reduction::none) args.loss = Tensor::empty({}, type, logits.device());
  LAMINA_LAUNCH(logits.device(), (Work{6 * logits.numel(), logits.nbytes()}), cross_entropy_forward, args);
  Tensor loss = args.loss.defined() ? args.loss : args.losses.reshape(targets.shape());
  record("cross_entropy", {logits}, {loss}, {args.logits, args.targets, args.lse},
         [options, rows, shape = logits.shape()](Backward& b) {
           CrossEntropyBackward back;
           back.logits = b.saved(0);
           back.targets = b.saved(1);
           back.lse = b.saved(2);
           back.options = options;
           back.grad = b.grad(0).reshape({options.reduction == Reduction::none ? rows : 1});
           back.dlogits = Tensor::empty(back.logits.shape(), back.logits.dtype(), back.logits.device());
           LAMINA_LAUNCH(back.logits.device(), (Work{6 * back.logits.numel(), 2 * back.logits.nbytes()}),
                         cross_entropy_backward, back);
           Tensor dlogits = std::exchange(back.dlogits, Tensor()).reshape(shape);  // sole owner, so add() does not copy
           b.add(0, std::move(dlogits));
         });
  return loss;
}

}  // namespace lamina::ops
