#include "lamina/ops/ssm/wkv.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/ssm/state.h"
#include "lamina/ops/ssm/wkv_kernel.h"

namespace lamina::ops {
namespace {

constexpr const char* kWkvOp = "wkv";

void run_wkv_backward(Backward& b) {
  WkvBackward back;
  WkvForward& f = back.forward;
  f.k = b.saved(0);
  f.v = b.saved(1);
  f.decay = b.saved(2);
  f.first = b.saved(3);
  f.initial_state = b.saved(4);
  back.dy = b.grad(0);
  const Device& device = f.k.device();
  const DType wide = f.decay.dtype();
  back.states = Tensor::empty({3, f.k.dim(0), f.k.dim(1), f.k.dim(2)}, wide, device);
  back.dk = Tensor::empty(f.k.shape(), f.k.dtype(), device);
  back.dv = Tensor::empty(f.k.shape(), f.k.dtype(), device);
  back.ddecay = Tensor::empty(f.decay.shape(), wide, device);
  back.dfirst = Tensor::empty(f.decay.shape(), wide, device);
  LAMINA_LAUNCH(device, (Work{120 * f.k.numel(), 5 * f.k.nbytes() + 2 * back.states.nbytes()}), wkv_backward, back);
  Tensor* gradients[] = {&back.dk, &back.dv, &back.ddecay, &back.dfirst};
  for (int i = 0; i < 4; ++i) {
    if (b.needs(i)) b.add(i, std::move(*gradients[i]));
  }
}

}  // namespace

ScanResult wkv(const Tensor& k, const Tensor& v, const Tensor& decay, const Tensor& first,
               const Tensor& initial_state) {
  check_floating(kWkvOp, "k", k);
  LAMINA_CHECK(k.rank() == 3, kWkvOp, ": k is ", k.shape(), "; expected [batch, seq, channels]");
  check_shape(kWkvOp, "v", v, k.shape());
  check_dtype(kWkvOp, "v", v, k.dtype());
  for (const auto& [name, tensor] : {std::pair("decay", decay), std::pair("first", first)}) {
    check_floating(kWkvOp, name, tensor);
    check_shape(kWkvOp, name, tensor, {k.dim(2)});
  }
  const Shape state{k.dim(0), 3, k.dim(2)};
  check_initial_state(kWkvOp, initial_state, state);
  check_same_device(kWkvOp, {k, v, decay, first, initial_state});
  WkvForward args;
  args.k = k.contiguous();
  args.v = v.contiguous();
  args.decay = as_accumulation(decay, k.dtype());
  args.first = as_accumulation(first, k.dtype());
  args.initial_state = accumulated(initial_state, k.dtype());
  args.y = Tensor::empty(k.shape(), k.dtype(), k.device());
  args.last_state = Tensor::empty(state, accumulation_type(k.dtype()), k.device());
  LAMINA_LAUNCH(k.device(), (Work{50 * k.numel(), 3 * k.nbytes()}), wkv_forward, args);
  record(kWkvOp, {k, v, decay, first}, {args.y}, {args.k, args.v, args.decay, args.first, args.initial_state},
         run_wkv_backward);
  return {args.y, args.last_state};
}

}  // namespace lamina::ops
