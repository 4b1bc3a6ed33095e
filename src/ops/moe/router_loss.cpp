#include "lamina/ops/moe/router_loss.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/moe/expert_indices.h"
#include "lamina/ops/moe/router_loss_kernel.h"

namespace lamina::ops {
namespace {

Tensor run(const char* op, const Tensor& logits, const Tensor& indices) {
  check_floating(op, "logits", logits);
  LAMINA_CHECK(logits.rank() == 2 && logits.dim(1) > 0, op, ": logits is ", logits.shape(),
               "; expected [tokens, experts] with at least one expert");
  check_same_device(op, {logits, indices});
  const DType accumulate = accumulation_type(logits.dtype());
  RouterLossForward args;
  args.logits = logits.contiguous();
  if (indices.defined()) {
    args.indices = checked_expert_indices(op, indices, logits.dim(1));
    LAMINA_CHECK(indices.dim(0) == logits.dim(0), op, ": indices ", indices.shape(), " are for ", indices.dim(0),
                 " tokens, logits ", logits.shape(), " for ", logits.dim(0), "; give both of the same tokens");
    args.shares = Tensor::empty({logits.dim(1)}, accumulate, logits.device());
  }
  args.loss = Tensor::empty({1}, accumulate, logits.device());
  LAMINA_LAUNCH(logits.device(), (Work{5 * logits.numel(), logits.nbytes()}), router_loss_forward, args);
  record(op, {logits}, {args.loss}, {args.logits, args.shares}, [](Backward& b) {
    RouterLossBackward back;
    back.logits = b.saved(0);
    back.shares = b.saved(1);
    back.dloss = b.grad(0);
    back.dlogits = Tensor::empty(back.logits.shape(), back.logits.dtype(), back.logits.device());
    LAMINA_LAUNCH(back.logits.device(), (Work{8 * back.logits.numel(), 2 * back.logits.nbytes()}), router_loss_backward,
                  back);
    b.add(0, std::move(back.dlogits));
  });
  return args.loss;
}

}  // namespace

Tensor balance_loss(const Tensor& logits, const Tensor& indices) {
  LAMINA_CHECK(indices.defined(), "balance_loss: indices is undefined; pass the indices that route_top_k returns");
  return run("balance_loss", logits, indices);
}

Tensor router_z_loss(const Tensor& logits) { return run("router_z_loss", logits, {}); }

}  // namespace lamina::ops
