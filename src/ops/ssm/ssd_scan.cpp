#include "lamina/ops/ssm/ssd_scan.h"

#include <algorithm>
#include <cmath>

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/ssm/ssd_scan_kernel.h"
#include "lamina/ops/ssm/state.h"

namespace lamina::ops {
namespace {

void check_options(const char* op, const SsdExtras& extras) {
  LAMINA_CHECK(extras.dt_min >= 0 && extras.dt_min <= extras.dt_max, op, ": dt is limited to [", extras.dt_min, ", ",
               extras.dt_max, "]; expected 0 <= dt_min <= dt_max");
  LAMINA_CHECK(extras.chunk_size >= 1 && extras.chunk_size <= 4096, op, ": chunk_size is ", extras.chunk_size,
               "; expected 1 to 4096");
}

/// Checks the arguments. `rank` is the rank of x: 4 for [batch, seq, heads, head_dim] or, for one position, 3 for
/// [batch, heads, head_dim].
void check(const char* op, const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& b, const Tensor& c,
           const SsdExtras& extras, int rank) {
  check_options(op, extras);
  check_floating(op, "x", x);
  LAMINA_CHECK(x.rank() == rank, op, ": x is ", x.shape(), "; expected ",
               rank == 4 ? "[batch, seq, heads, head_dim]" : "[batch, heads, head_dim]");
  const int64_t heads = x.dim(-2);
  const Shape per_head(std::span(x.shape().begin(), static_cast<size_t>(rank - 1)));
  check_shape(op, "dt", dt, per_head);
  check_floating(op, "b", b);
  LAMINA_CHECK(b.rank() == rank && b.dim(-2) >= 1 && heads % b.dim(-2) == 0, op, ": b is ", b.shape(), " with x ",
               x.shape(), "; expected groups in place of heads, a divisor of ", heads, ", and n at the end");
  Shape grouped = x.shape();
  grouped[-2] = b.dim(-2);
  grouped[-1] = b.dim(-1);
  check_shape(op, "b", b, grouped);
  check_shape(op, "c", c, grouped);
  for (const auto& [name, tensor] : {std::pair{"dt", dt}, std::pair{"b", b}, std::pair{"c", c}}) {
    check_dtype(op, name, tensor, x.dtype());
  }
  for (const auto& [name, tensor] :
       {std::pair{"a", a}, std::pair{"d", extras.d}, std::pair{"dt_bias", extras.dt_bias}}) {
    if (!tensor.defined() && name[0] != 'a') continue;
    check_floating(op, name, tensor);
    check_shape(op, name, tensor, {heads});
  }
  check_same_device(op, {x, dt, a, b, c, extras.d, extras.dt_bias, extras.initial_state});
}

/// The options without the tensors, which the tape must not keep alive. On a GPU, chunks have at most 64 positions;
/// larger ones would only cost more work.
SsdExtras scalar_options(SsdExtras extras, const Device& device) {
  constexpr int64_t kMostOnGpu = 64;
  extras.d = extras.dt_bias = extras.initial_state = Tensor();
  if (device.like() == DeviceKind::cuda) extras.chunk_size = std::min(extras.chunk_size, kMostOnGpu);
  return extras;
}

int64_t flops(const SsdForward& f) {
  const int64_t q = f.options.chunk_size;
  const int64_t p = f.x.dim(3);
  const int64_t n = f.b.dim(3);
  const int64_t tokens = f.x.dim(0) * f.x.dim(1);
  return 2 * tokens * (f.x.dim(2) * p * (q + 2 * n) + f.b.dim(2) * q * n);
}

enum Input : int { kX, kDt, kA, kB, kC, kD, kDtBias, kInitialState };

void run_backward(Backward& b, const SsdExtras& options) {
  SsdBackward back;
  SsdForward& f = back.forward;
  f = {b.saved(0), b.saved(1), b.saved(2), b.saved(3), b.saved(4), b.saved(5), b.saved(6), options, {}, {}, b.saved(7)};
  back.dy = b.grad(0);
  const Device& device = f.x.device();
  const DType accumulate = f.a.dtype();
  const Shape state{f.x.dim(0), f.x.dim(2), f.x.dim(3), f.b.dim(3)};
  back.dstate = b.has_grad(1) ? b.grad(1).clone() : Tensor::zeros(state, accumulate, device);
  back.dx = Tensor::empty(f.x.shape(), f.x.dtype(), device);
  back.ddt = Tensor::empty(f.dt.shape(), f.dt.dtype(), device);
  back.da = Tensor::empty(f.a.shape(), accumulate, device);
  back.db = Tensor::empty(f.b.shape(), accumulate, device);
  back.dc = Tensor::empty(f.c.shape(), accumulate, device);
  if (b.needs(kD)) back.dd = Tensor::empty(f.a.shape(), accumulate, device);
  if (b.needs(kDtBias)) back.ddt_bias = Tensor::empty(f.a.shape(), accumulate, device);
  LAMINA_LAUNCH(device, (Work{2 * flops(f), 3 * f.x.nbytes() + 3 * f.b.nbytes() + f.states.nbytes()}), ssd_backward,
                back);
  const auto give = [&](int input, Tensor grad) {
    if (b.needs(input)) b.add(input, std::move(grad));
  };
  give(kX, std::move(back.dx));
  give(kDt, std::move(back.ddt));
  give(kA, std::move(back.da));
  give(kB, std::move(back.db));
  give(kC, std::move(back.dc));
  give(kD, std::move(back.dd));
  give(kDtBias, std::move(back.ddt_bias));
  give(kInitialState, std::move(back.dstate));
}

}  // namespace

ScanResult ssd_scan(const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& b, const Tensor& c,
                    const SsdExtras& extras) {
  constexpr const char* kOp = "ssd_scan";
  check(kOp, x, dt, a, b, c, extras, 4);
  const DType accumulate = accumulation_type(x.dtype());
  const Shape state{x.dim(0), x.dim(2), x.dim(3), b.dim(3)};
  check_initial_state(kOp, extras.initial_state, state);
  SsdForward args;
  if (extras.initial_state.defined()) {
    args.state = Tensor::empty(state, accumulate, x.device());
    args.state.copy_(extras.initial_state.detach());
  } else {
    args.state = Tensor::zeros(state, accumulate, x.device());
  }
  const std::vector<Tensor> inputs{x, dt, a, b, c, extras.d, extras.dt_bias, extras.initial_state};
  args.x = x.contiguous();
  args.dt = dt.contiguous();
  args.a = as_accumulation(a, x.dtype());
  args.b = as_accumulation(b, x.dtype());
  args.c = as_accumulation(c, x.dtype());
  args.d = accumulated(extras.d, x.dtype());
  args.dt_bias = accumulated(extras.dt_bias, x.dtype());
  args.options = scalar_options(extras, x.device());
  args.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (is_tracked(inputs)) {
    const int64_t size = args.options.chunk_size;
    const int64_t chunks = (x.dim(1) + size - 1) / size;
    args.states = Tensor::empty({x.dim(0), chunks, x.dim(2), x.dim(3), b.dim(3)}, accumulate, x.device());
  }
  LAMINA_LAUNCH(x.device(), (Work{flops(args), 2 * x.nbytes() + b.nbytes() + c.nbytes()}), ssd_forward, args);
  record(kOp, inputs, {args.y, args.state},
         {args.x, args.dt, args.a, args.b, args.c, args.d, args.dt_bias, args.states},
         [options = args.options](Backward& back) { run_backward(back, options); });
  return {args.y, args.state};
}

Tensor ssd_step(const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& b, const Tensor& c, Tensor& state,
                const SsdExtras& extras) {
  constexpr const char* kOp = "ssd_step";
  check(kOp, x, dt, a, b, c, extras, 3);
  check_step_state(kOp, state, {x.dim(0), x.dim(1), x.dim(2), b.dim(2)}, x, extras.initial_state);
  StateInPlace in_place(kOp, state);
  SsdStep args;
  args.x = as_accumulation(x, x.dtype());
  args.dt = as_accumulation(dt, x.dtype());
  args.a = as_accumulation(a, x.dtype());
  args.b = as_accumulation(b, x.dtype());
  args.c = as_accumulation(c, x.dtype());
  args.d = accumulated(extras.d, x.dtype());
  args.dt_bias = accumulated(extras.dt_bias, x.dtype());
  args.options = scalar_options(extras, x.device());
  args.state = in_place.dense();
  args.y = Tensor::empty(x.shape(), args.a.dtype(), x.device());
  LAMINA_LAUNCH(x.device(), (Work{5 * state.numel(), 2 * state.nbytes()}), ssd_step, args);
  in_place.finish();
  return args.y.to(x.dtype());
}

}  // namespace lamina::ops
