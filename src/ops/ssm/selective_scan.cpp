#include "lamina/ops/ssm/selective_scan.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/ssm/selective_scan_kernel.h"
#include "lamina/ops/ssm/state.h"

namespace lamina::ops {
namespace {

/// Checks all arguments except the state. `rank` is the rank of u: 3, or 2 for one position.
void check(const char* op, const Tensor& u, const Tensor& delta, const Tensor& a, const Tensor& b, const Tensor& c,
           const SelectiveScanExtras& extras, int rank) {
  check_floating(op, "u", u);
  LAMINA_CHECK(u.rank() == rank, op, ": u is ", u.shape(), "; expected ",
               rank == 3 ? "[batch, seq, channels]" : "[batch, channels]");
  check_floating(op, "a", a);
  const int64_t channels = u.dim(-1);
  LAMINA_CHECK(a.rank() == 2 && a.dim(0) == channels, op, ": a is ", a.shape(), ", u ", u.shape(), " has ", channels,
               " channels; expected [", channels, ", n]");
  Shape per_state = u.shape();
  per_state[-1] = a.dim(1);
  const auto like_u = [&](const char* name, const Tensor& tensor, const Shape& shape) {
    check_shape(op, name, tensor, shape);
    check_dtype(op, name, tensor, u.dtype());
  };
  like_u("delta", delta, u.shape());
  like_u("b", b, per_state);
  like_u("c", c, per_state);
  if (extras.z.defined()) like_u("z", extras.z, u.shape());
  for (const auto& [name, tensor] : {std::pair{"d", extras.d}, std::pair{"delta_bias", extras.delta_bias}}) {
    if (!tensor.defined()) continue;
    check_floating(op, name, tensor);
    check_shape(op, name, tensor, {channels});
  }
  check_same_device(op, {u, delta, a, b, c, extras.d, extras.z, extras.delta_bias, extras.initial_state});
}

/// The order of the inputs in the tape record.
enum Input : int { kU, kDelta, kA, kB, kC, kD, kZ, kDeltaBias, kInitialState };

void run_backward(Backward& b, bool delta_softplus) {
  SelectiveScanBackward back;
  SelectiveScanForward& f = back.forward;
  f.u = b.saved(0);
  f.delta = b.saved(1);
  f.z = b.saved(2);
  f.a = b.saved(3);
  f.b = b.saved(4);
  f.c = b.saved(5);
  f.d = b.saved(6);
  f.delta_bias = b.saved(7);
  f.states = b.saved(8);
  f.delta_softplus = delta_softplus;
  back.dy = b.grad(0);
  if (b.has_grad(1)) back.dlast_state = b.grad(1);
  const Device& device = f.u.device();
  const DType accumulate = f.a.dtype();
  back.du = Tensor::empty(f.u.shape(), f.u.dtype(), device);
  back.ddelta = Tensor::empty(f.u.shape(), f.u.dtype(), device);
  if (f.z.defined()) back.dz = Tensor::empty(f.u.shape(), f.u.dtype(), device);
  back.da = Tensor::empty(f.a.shape(), accumulate, device);
  back.db = Tensor::empty(f.b.shape(), accumulate, device);
  back.dc = Tensor::empty(f.c.shape(), accumulate, device);
  if (b.needs(kD)) back.dd = Tensor::empty({f.u.dim(2)}, accumulate, device);
  if (b.needs(kDeltaBias)) back.ddelta_bias = Tensor::empty({f.u.dim(2)}, accumulate, device);
  if (b.needs(kInitialState)) {
    back.dinitial_state = Tensor::empty({f.u.dim(0), f.u.dim(2), f.a.dim(0)}, accumulate, device);
  }
  LAMINA_LAUNCH(device, (Work{24 * f.u.numel() * f.a.dim(0), (f.z.defined() ? 7 : 5) * f.u.nbytes()}),
                selective_scan_backward, back);
  const auto give = [&](int input, Tensor grad) {
    if (b.needs(input)) b.add(input, std::move(grad));
  };
  give(kU, std::move(back.du));
  give(kDelta, std::move(back.ddelta));
  give(kA, back.da.transpose(0, 1).contiguous());
  give(kB, std::move(back.db));
  give(kC, std::move(back.dc));
  give(kD, std::move(back.dd));
  give(kZ, std::move(back.dz));
  give(kDeltaBias, std::move(back.ddelta_bias));
  give(kInitialState, std::move(back.dinitial_state));
}

}  // namespace

ScanResult selective_scan(const Tensor& u, const Tensor& delta, const Tensor& a, const Tensor& b, const Tensor& c,
                          const SelectiveScanExtras& extras) {
  constexpr const char* kOp = "selective_scan";
  check(kOp, u, delta, a, b, c, extras, 3);
  const int64_t n = a.dim(1);
  const Shape state_shape{u.dim(0), u.dim(2), n};
  check_initial_state(kOp, extras.initial_state, state_shape);
  const std::vector<Tensor> inputs{u, delta, a, b, c, extras.d, extras.z, extras.delta_bias, extras.initial_state};
  const DType accumulate = accumulation_type(u.dtype());
  SelectiveScanForward args;
  args.u = u.contiguous();
  args.delta = delta.contiguous();
  if (extras.z.defined()) args.z = extras.z.contiguous();
  args.a = as_accumulation(a.detach().transpose(0, 1), u.dtype());
  args.b = as_accumulation(b, u.dtype());
  args.c = as_accumulation(c, u.dtype());
  args.d = accumulated(extras.d, u.dtype());
  args.delta_bias = accumulated(extras.delta_bias, u.dtype());
  args.initial_state = accumulated(extras.initial_state, u.dtype());
  args.delta_softplus = extras.delta_softplus;
  args.y = Tensor::empty(u.shape(), u.dtype(), u.device());
  args.last_state = Tensor::empty(state_shape, accumulate, u.device());
  if (is_tracked(inputs)) {
    const int64_t chunks = (u.dim(1) + kScanChunk - 1) / kScanChunk;
    args.states = Tensor::empty({u.dim(0), chunks, n, u.dim(2)}, accumulate, u.device());
  }
  LAMINA_LAUNCH(u.device(), (Work{8 * u.numel() * n, (extras.z.defined() ? 4 : 3) * u.nbytes()}),
                selective_scan_forward, args);
  record(kOp, inputs, {args.y, args.last_state},
         {args.u, args.delta, args.z, args.a, args.b, args.c, args.d, args.delta_bias, args.states},
         [softplus = extras.delta_softplus](Backward& back) { run_backward(back, softplus); });
  return {args.y, args.last_state};
}

Tensor selective_scan_step(const Tensor& u, const Tensor& delta, const Tensor& a, const Tensor& b, const Tensor& c,
                           Tensor& state, const SelectiveScanExtras& extras) {
  constexpr const char* kOp = "selective_scan_step";
  check(kOp, u, delta, a, b, c, extras, 2);
  check_step_state(kOp, state, {u.dim(0), u.dim(1), a.dim(1)}, u, extras.initial_state);
  StateInPlace in_place(kOp, state);
  SelectiveScanStep args;
  args.u = accumulated(u, u.dtype());
  args.delta = accumulated(delta, u.dtype());
  args.z = accumulated(extras.z, u.dtype());
  args.a = as_accumulation(a, u.dtype());
  args.b = as_accumulation(b, u.dtype());
  args.c = as_accumulation(c, u.dtype());
  args.d = accumulated(extras.d, u.dtype());
  args.delta_bias = accumulated(extras.delta_bias, u.dtype());
  args.delta_softplus = extras.delta_softplus;
  args.state = in_place.dense();
  args.y = Tensor::empty(u.shape(), args.a.dtype(), u.device());
  LAMINA_LAUNCH(u.device(), (Work{8 * state.numel(), 2 * state.nbytes() + a.nbytes()}), selective_scan_step, args);
  in_place.finish();
  return args.y.to(u.dtype());
}

}  // namespace lamina::ops
