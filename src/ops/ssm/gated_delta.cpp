#include "lamina/ops/ssm/gated_delta.h"

#include <algorithm>
#include <cmath>

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/ssm/gated_delta_kernel.h"
#include "lamina/ops/ssm/state.h"

namespace lamina::ops {
namespace {

constexpr const char* kDeltaOp = "gated_delta";

void check(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta) {
  check_floating(kDeltaOp, "q", q);
  LAMINA_CHECK(q.rank() == 4 && q.dim(2) >= 1, kDeltaOp, ": q is ", q.shape(),
               "; expected [batch, seq, key_heads, d_k] with at least one head");
  check_shape(kDeltaOp, "k", k, q.shape());
  check_dtype(kDeltaOp, "k", k, q.dtype());
  check_floating(kDeltaOp, "v", v);
  check_dtype(kDeltaOp, "v", v, q.dtype());
  LAMINA_CHECK(v.rank() == 4 && v.dim(0) == q.dim(0) && v.dim(1) == q.dim(1) && v.dim(2) % q.dim(2) == 0, kDeltaOp,
               ": v is ", v.shape(), " with q ", q.shape(), "; expected [", q.dim(0), ", ", q.dim(1),
               ", heads, d_v] with heads a multiple of ", q.dim(2));
  for (const auto& [name, tensor] : {std::pair("g", g), std::pair("beta", beta)}) {
    check_floating(kDeltaOp, name, tensor);
    check_shape(kDeltaOp, name, tensor, {v.dim(0), v.dim(1), v.dim(2)});
  }
}

int64_t state_work(const Tensor& k, const Tensor& v) { return v.numel() * k.dim(3); }

void run_delta_backward(Backward& b) {
  GatedDeltaBackward back;
  back.q = b.saved(0);
  back.k = b.saved(1);
  back.v = b.saved(2);
  back.g = b.saved(3);
  back.beta = b.saved(4);
  back.initial_state = b.saved(5);
  const Device& device = back.q.device();
  const DType wide = back.q.dtype();
  back.dy = b.has_grad(0) ? as_accumulation(b.grad(0), wide) : Tensor::zeros(back.v.shape(), wide, device);
  back.dstate = b.has_grad(1) ? b.grad(1).clone() : Tensor::zeros(back.initial_state.shape(), wide, device);
  const Tensor* inputs[] = {&back.q, &back.k, &back.v, &back.g, &back.beta};
  Tensor* gradients[] = {&back.dq, &back.dk, &back.dv, &back.dg, &back.dbeta};
  for (int i = 0; i < 5; ++i) *gradients[i] = Tensor::zeros(inputs[i]->shape(), wide, device);
  back.chunk = std::max<int64_t>(1, std::lround(std::sqrt(static_cast<double>(back.q.dim(1)))));
  LAMINA_LAUNCH(device, (Work{26 * state_work(back.k, back.v), 6 * back.v.nbytes() + 4 * back.q.nbytes()}),
                gated_delta_backward, back);
  for (int i = 0; i < 5; ++i) {
    if (b.needs(i)) b.add(i, std::move(*gradients[i]));
  }
  if (b.needs(5)) b.add(5, std::move(back.dstate));
}

}  // namespace

ScanResult gated_delta(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta,
                       const Tensor& initial_state) {
  check(q, k, v, g, beta);
  const Shape state{v.dim(0), v.dim(2), q.dim(3), v.dim(3)};
  check_initial_state(kDeltaOp, initial_state, state);
  check_same_device(kDeltaOp, {q, k, v, g, beta, initial_state});
  const DType wide = accumulation_type(q.dtype());
  GatedDeltaForward args;
  args.q = as_accumulation(q, q.dtype());
  args.k = as_accumulation(k, q.dtype());
  args.v = as_accumulation(v, q.dtype());
  args.g = as_accumulation(g, q.dtype());
  args.beta = as_accumulation(beta, q.dtype());
  args.y = Tensor::empty(v.shape(), wide, v.device());
  const Tensor begin =
      initial_state.defined() ? as_accumulation(initial_state, q.dtype()) : Tensor::zeros(state, wide, v.device());
  args.state = Tensor::empty(state, wide, v.device());
  args.state.copy_(begin.detach());
  LAMINA_LAUNCH(v.device(), (Work{7 * state_work(k, v), 2 * v.nbytes() + 2 * q.nbytes()}), gated_delta_forward, args);
  Tensor y = args.y.to(v.dtype());
  record(kDeltaOp, {q, k, v, g, beta, initial_state}, {y, args.state},
         {args.q, args.k, args.v, args.g, args.beta, begin}, run_delta_backward);
  return {y, args.state};
}

}  // namespace lamina::ops
