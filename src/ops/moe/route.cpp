#include "lamina/ops/moe/route.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/moe/route_kernel.h"

namespace lamina::ops {
namespace {

constexpr const char* kOp = "route_top_k";

void check_options(const RouteOptions& options, int64_t experts) {
  LAMINA_CHECK(options.k >= 1 && options.k <= experts, kOp, ": k is ", options.k, " with ", experts,
               " experts; choose 1 <= k <= experts");
  check_finite(kOp, "scale", options.scale);
  LAMINA_CHECK(options.groups >= 1 && experts % options.groups == 0, kOp, ": ", experts, " experts in ", options.groups,
               " groups; groups must divide the number of experts");
  LAMINA_CHECK(options.chosen_groups >= 1 && options.chosen_groups <= options.groups, kOp, ": chosen_groups is ",
               options.chosen_groups, " of ", options.groups, " groups; choose 1 <= chosen_groups <= groups");
  const int64_t per_group = experts / options.groups;
  LAMINA_CHECK(options.k <= options.chosen_groups * per_group, kOp, ": k is ", options.k, ", but ",
               options.chosen_groups, " groups of ", per_group, " experts hold only ",
               options.chosen_groups * per_group, "; choose more groups or a smaller k");
  LAMINA_CHECK(options.groups == 1 || (options.group_best >= 1 && options.group_best <= per_group), kOp,
               ": group_best is ", options.group_best, ", a group has ", per_group,
               " experts; choose 1 <= group_best <= experts per group");
  if (options.score != RouterScore::softmax_of_near) return;
  LAMINA_CHECK(options.near >= 0, kOp, ": near is ", options.near, "; expected 0 or more");
  LAMINA_CHECK(options.groups == 1 && !options.normalize, kOp,
               ": softmax_of_near with groups or normalization; its weights are no shares of one softmax: use neither");
}

}  // namespace

Routing route_top_k(const Tensor& logits, const RouteOptions& options, const Tensor& bias) {
  check_floating(kOp, "logits", logits);
  LAMINA_CHECK(logits.rank() == 2, kOp, ": logits is ", logits.shape(), "; expected [tokens, experts]");
  const int64_t tokens = logits.dim(0);
  const int64_t experts = logits.dim(1);
  check_options(options, experts);
  LAMINA_CHECK(!bias.defined() || options.score != RouterScore::softmax_of_near, kOp,
               ": softmax_of_near with a bias; it chooses by the logits alone: leave the bias out");
  if (bias.defined()) {
    check_floating(kOp, "bias", bias);
    check_shape(kOp, "bias", bias, {experts});
  }
  check_same_device(kOp, {logits, bias});

  RouteForward args;
  args.logits = logits.contiguous();
  if (bias.defined()) args.bias = as_accumulation(bias, logits.dtype());
  args.options = options;
  args.weights = Tensor::empty({tokens, options.k}, logits.dtype(), logits.device());
  args.indices = Tensor::empty({tokens, options.k}, DType::i64, logits.device());
  args.counts = Tensor::empty({experts}, DType::i64, logits.device());
  LAMINA_LAUNCH(logits.device(),
                (Work{4 * logits.numel(), logits.nbytes() + args.weights.nbytes() + args.indices.nbytes()}),
                route_forward, args);
  record(kOp, {logits}, {args.weights}, {args.logits, args.indices}, [options](Backward& b) {
    RouteBackward back;
    back.logits = b.saved(0);
    back.indices = b.saved(1);
    back.dweights = b.grad(0);
    back.options = options;
    back.dlogits = Tensor::empty(back.logits.shape(), back.logits.dtype(), back.logits.device());
    LAMINA_LAUNCH(back.logits.device(), (Work{6 * back.logits.numel(), 2 * back.logits.nbytes()}), route_backward,
                  back);
    b.add(0, std::move(back.dlogits));
  });
  return {args.weights, args.indices, args.counts};
}

}  // namespace lamina::ops
