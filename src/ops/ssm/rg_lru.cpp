#include "lamina/ops/ssm/rg_lru.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/ssm/rg_lru_kernel.h"
#include "lamina/ops/ssm/state.h"

namespace lamina::ops {
namespace {

constexpr const char* kLruOp = "rg_lru";

void run_lru_backward(Backward& b) {
  RgLruBackward back;
  RgLruForward& f = back.forward;
  f.x = b.saved(0);
  f.input = b.saved(1);
  f.recurrence = b.saved(2);
  f.decay = b.saved(3);
  f.initial_state = b.saved(4);
  f.begun = b.saved(5);
  back.dy = b.grad(0);
  if (b.has_grad(1)) back.dlast_state = b.grad(1);
  const Device& device = f.x.device();
  const DType wide = f.decay.dtype();
  back.states = Tensor::empty(f.x.shape(), wide, device);
  for (Tensor* gradient : {&back.dx, &back.dinput, &back.drecurrence}) {
    *gradient = Tensor::empty(f.x.shape(), f.x.dtype(), device);
  }
  back.ddecay = Tensor::empty(f.decay.shape(), wide, device);
  if (b.needs(4)) back.dinitial_state = Tensor::empty({f.x.dim(0), f.x.dim(2)}, wide, device);
  LAMINA_LAUNCH(device, (Work{90 * f.x.numel(), 7 * f.x.nbytes()}), rg_lru_backward, back);
  Tensor* gradients[] = {&back.dx, &back.dinput, &back.drecurrence, &back.ddecay, &back.dinitial_state};
  for (int i = 0; i < 5; ++i) {
    if (b.needs(i)) b.add(i, std::move(*gradients[i]));
  }
}

}  // namespace

ScanResult rg_lru(const Tensor& x, const Tensor& input, const Tensor& recurrence, const Tensor& decay,
                  const Tensor& initial_state, const Tensor& begun) {
  check_floating(kLruOp, "x", x);
  LAMINA_CHECK(x.rank() == 3, kLruOp, ": x is ", x.shape(), "; expected [batch, seq, channels]");
  for (const auto& [name, gate] : {std::pair("input", input), std::pair("recurrence", recurrence)}) {
    check_shape(kLruOp, name, gate, x.shape());
    check_dtype(kLruOp, name, gate, x.dtype());
  }
  check_floating(kLruOp, "decay", decay);
  check_shape(kLruOp, "decay", decay, {x.dim(2)});
  const Shape state{x.dim(0), x.dim(2)};
  check_initial_state(kLruOp, initial_state, state);
  if (begun.defined()) {
    check_floating(kLruOp, "begun", begun);
    check_shape(kLruOp, "begun", begun, {x.dim(0)});
  }
  check_same_device(kLruOp, {x, input, recurrence, decay, initial_state, begun});
  RgLruForward args;
  args.x = x.contiguous();
  args.input = input.contiguous();
  args.recurrence = recurrence.contiguous();
  args.decay = as_accumulation(decay, x.dtype());
  args.initial_state = accumulated(initial_state, x.dtype());
  args.begun = accumulated(begun, x.dtype());
  args.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  args.last_state = Tensor::empty(state, accumulation_type(x.dtype()), x.device());
  LAMINA_LAUNCH(x.device(), (Work{40 * x.numel(), 4 * x.nbytes()}), rg_lru_forward, args);
  record(kLruOp, {x, input, recurrence, decay, initial_state}, {args.y, args.last_state},
         {args.x, args.input, args.recurrence, args.decay, args.initial_state, args.begun}, run_lru_backward);
  return {args.y, args.last_state};
}

}  // namespace lamina::ops
