#include "lamina/ops/ssm/causal_conv1d.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/ssm/causal_conv1d_kernel.h"
#include "lamina/ops/ssm/state.h"

namespace lamina::ops {
namespace {

constexpr int64_t kLongestKernel = 65536;

void check(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating(op, "x", x);
  check_floating(op, "weight", weight);
  const int64_t channels = x.dim(-1);
  LAMINA_CHECK(weight.rank() == 2 && weight.dim(0) == channels && weight.dim(1) >= 1 && weight.dim(1) <= kLongestKernel,
               op, ": weight is ", weight.shape(), ", x ", x.shape(), " has ", channels, " channels; expected [",
               channels, ", kernel] with kernel from 1 to ", kLongestKernel);
  if (bias.defined()) {
    check_floating(op, "bias", bias);
    check_shape(op, "bias", bias, {channels});
  }
  check_same_device(op, {x, weight, bias});
}

void check_state(const char* op, const Tensor& x, const Tensor& state, int64_t kernel) {
  check_shape(op, "initial_state", state, {x.dim(0), x.dim(-1), kernel - 1});
  check_dtype(op, "initial_state", state, x.dtype());
  check_same_device(op, {x, state});
}

void run_backward(Backward& b, bool silu) {
  CausalConv1dBackward back;
  back.forward = {b.saved(0), b.saved(1), b.saved(2), b.saved(3), silu, {}};
  back.dy = b.grad(0);
  const Tensor& x = back.forward.x;
  const Tensor& taps = back.forward.taps;
  back.dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (b.needs(1)) back.dtaps = Tensor::empty(taps.shape(), taps.dtype(), x.device());
  if (b.needs(2)) back.dbias = Tensor::empty({x.dim(2)}, taps.dtype(), x.device());
  if (b.needs(3)) back.dstate = Tensor::empty({x.dim(0), taps.dim(0) - 1, x.dim(2)}, x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{(silu ? 6 : 4) * x.numel() * taps.dim(0), 3 * x.nbytes()}), causal_conv1d_backward,
                back);
  if (b.needs(1)) b.add(1, back.dtaps.transpose(0, 1).contiguous());
  if (b.needs(2)) b.add(2, std::move(back.dbias));
  if (b.needs(3)) b.add(3, back.dstate.transpose(1, 2).contiguous());
  if (b.needs(0)) b.add(0, std::move(back.dx));
}

}  // namespace

Tensor causal_conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& initial_state,
                     ConvActivation activation) {
  constexpr const char* kOp = "causal_conv1d";
  LAMINA_CHECK(x.defined() && x.rank() == 3, kOp, ": x is ", x.defined() ? x.shape() : Shape{},
               "; expected [batch, seq, channels]");
  check(kOp, x, weight, bias);
  const int64_t kernel = weight.dim(1);
  if (initial_state.defined()) check_state(kOp, x, initial_state, kernel);
  CausalConv1dForward args;
  args.x = x.contiguous();
  args.taps = as_accumulation(weight.detach().transpose(0, 1), x.dtype());
  if (bias.defined()) args.bias = as_accumulation(bias, x.dtype());
  if (initial_state.defined()) args.state = initial_state.detach().transpose(1, 2).contiguous();
  args.silu = activation == ConvActivation::silu;
  args.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{2 * x.numel() * kernel, 2 * x.nbytes()}), causal_conv1d_forward, args);
  record(kOp, {x, weight, bias, initial_state}, {args.y}, {args.x, args.taps, args.bias, args.state},
         [silu = args.silu](Backward& b) { run_backward(b, silu); });
  return args.y;
}

Tensor causal_conv1d_state(const Tensor& x, int64_t kernel, const Tensor& initial_state) {
  constexpr const char* kOp = "causal_conv1d_state";
  check_floating(kOp, "x", x);
  LAMINA_CHECK(x.rank() == 3, kOp, ": x is ", x.shape(), "; expected [batch, seq, channels]");
  LAMINA_CHECK(kernel >= 1 && kernel <= kLongestKernel, kOp, ": kernel is ", kernel, "; expected from 1 to ",
               kLongestKernel);
  if (initial_state.defined()) check_state(kOp, x, initial_state, kernel);
  Tensor state = Tensor::empty({x.dim(0), x.dim(2), kernel - 1}, x.dtype(), x.device());
  const Tensor before = initial_state.defined() ? initial_state.detach().contiguous() : Tensor();
  LAMINA_LAUNCH(x.device(), (Work{0, 2 * state.nbytes()}), causal_conv1d_state, x.detach().contiguous(), before, state);
  return state;
}

Tensor causal_conv1d_step(const Tensor& x, Tensor& state, const Tensor& weight, const Tensor& bias,
                          ConvActivation activation) {
  constexpr const char* kOp = "causal_conv1d_step";
  LAMINA_CHECK(x.defined() && x.rank() == 2, kOp, ": x is ", x.defined() ? x.shape() : Shape{},
               "; expected [batch, channels]");
  check(kOp, x, weight, bias);
  check_state(kOp, x, state, weight.dim(1));
  StateInPlace in_place(kOp, state);
  CausalConv1dStep args;
  args.x = x.detach().contiguous();
  args.state = in_place.dense();
  args.weight = as_accumulation(weight, x.dtype());
  if (bias.defined()) args.bias = as_accumulation(bias, x.dtype());
  args.silu = activation == ConvActivation::silu;
  args.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{2 * weight.numel() * x.dim(0), 2 * state.nbytes() + weight.nbytes()}),
                causal_conv1d_step, args);
  in_place.finish();
  return args.y;
}

}  // namespace lamina::ops
