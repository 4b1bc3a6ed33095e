#include "lamina/ops/ssm/s4d.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/ssm/s4d_kernel.h"
#include "lamina/ops/ssm/selective_scan_kernel.h"

namespace lamina::ops {
namespace {

void check(const char* op, const S4dParameters& p) {
  check_floating(op, "log_dt", p.log_dt);
  check_floating(op, "a_real_log", p.a_real_log);
  check_floating(op, "a_imag", p.a_imag);
  check_floating(op, "c", p.c);
  LAMINA_CHECK(p.a_imag.rank() == 2, op, ": a_imag is ", p.a_imag.shape(), "; expected [channels, n]");
  const int64_t channels = p.a_imag.dim(0);
  const int64_t n = p.a_imag.dim(1);
  check_shape(op, "log_dt", p.log_dt, {channels});
  check_shape(op, "a_real_log", p.a_real_log, {channels, n});
  check_shape(op, "c", p.c, {channels, n, 2});
  check_same_device(op, {p.log_dt, p.a_real_log, p.a_imag, p.c});
}

S4dParameters in_f64(const S4dParameters& p) {
  const auto dense = [](const Tensor& tensor) { return as_accumulation(tensor, DType::f64); };
  return {dense(p.log_dt), dense(p.a_real_log), dense(p.a_imag), dense(p.c)};
}

S4dParameters make_grads(const S4dParameters& p) {
  const auto like = [](const Tensor& tensor) { return Tensor::zeros(tensor.shape(), DType::f64, tensor.device()); };
  return {like(p.log_dt), like(p.a_real_log), like(p.a_imag), like(p.c)};
}

/// Stores the gradients of the parameters, which are inputs `first` to `first + 3` of the tape record.
void give_grads(Backward& b, int first, S4dParameters grads) {
  Tensor* all[] = {&grads.log_dt, &grads.a_real_log, &grads.a_imag, &grads.c};
  for (int i = 0; i < 4; ++i) {
    if (b.needs(first + i)) b.add(first + i, std::move(*all[i]));
  }
}

S4dParameters saved_parameters(const Backward& b, int first) {
  return {b.saved(first), b.saved(first + 1), b.saved(first + 2), b.saved(first + 3)};
}

void run_recurrence_backward(Backward& b) {
  S4dScanBackward back;
  S4dScanForward& f = back.forward;
  f.u = b.saved(0);
  f.parameters = saved_parameters(b, 1);
  f.d = b.saved(5);
  f.states = b.saved(6);
  back.dy = b.grad(0);
  if (b.has_grad(1)) back.dlast_state = b.grad(1);
  const Device& device = f.u.device();
  const int64_t n = f.parameters.a_imag.dim(1);
  back.du = Tensor::empty(f.u.shape(), f.u.dtype(), device);
  if (b.needs(5)) back.dd = Tensor::empty({f.u.dim(2)}, f.states.dtype(), device);
  if (b.needs(6)) back.dinitial_state = Tensor::empty({f.u.dim(0), f.u.dim(2), n, 2}, f.states.dtype(), device);
  back.grads = make_grads(f.parameters);
  LAMINA_LAUNCH(device, (Work{26 * f.u.numel() * n, 3 * f.u.nbytes()}), s4d_scan_backward, back);
  if (b.needs(0)) b.add(0, std::move(back.du));
  give_grads(b, 1, std::move(back.grads));
  if (b.needs(5)) b.add(5, std::move(back.dd));
  if (b.needs(6)) b.add(6, std::move(back.dinitial_state));
}

}  // namespace

Tensor s4d_kernel(const S4dParameters& parameters, int64_t length) {
  constexpr const char* kOp = "s4d_kernel";
  check(kOp, parameters);
  LAMINA_CHECK(length >= 0, kOp, ": length is ", length, "; expected 0 or more");
  const S4dParameters p = in_f64(parameters);
  const Tensor& c = parameters.c;
  Tensor kernel = Tensor::empty({c.dim(0), length}, c.dtype(), c.device());
  const int64_t n = c.dim(1);
  LAMINA_LAUNCH(c.device(), (Work{7 * kernel.numel() * n, kernel.nbytes()}), s4d_kernel_forward,
                (S4dKernelForward{p, kernel}));
  record(kOp, {parameters.log_dt, parameters.a_real_log, parameters.a_imag, c}, {kernel},
         {p.log_dt, p.a_real_log, p.a_imag, p.c}, [](Backward& b) {
           const S4dParameters saved = saved_parameters(b, 0);
           const S4dKernelBackward back{saved, b.grad(0), make_grads(saved)};
           LAMINA_LAUNCH(back.dkernel.device(),
                         (Work{14 * back.dkernel.numel() * saved.c.dim(1), back.dkernel.nbytes()}), s4d_kernel_backward,
                         back);
           give_grads(b, 0, back.grads);
         });
  return kernel;
}

ScanResult s4d_recurrence(const Tensor& u, const S4dParameters& parameters, const Tensor& d,
                          const Tensor& initial_state) {
  constexpr const char* kOp = "s4d_recurrence";
  check_floating(kOp, "u", u);
  check(kOp, parameters);
  const int64_t n = parameters.a_imag.dim(1);
  LAMINA_CHECK(u.rank() == 3 && u.dim(2) == parameters.a_imag.dim(0), kOp, ": u is ", u.shape(), ", a_imag is ",
               parameters.a_imag.shape(), "; expected [batch, seq, channels] and [channels, n]");
  const DType accumulate = accumulation_type(u.dtype());
  const Shape state{u.dim(0), u.dim(2), n, 2};
  S4dScanForward args;
  args.u = u.contiguous();
  args.parameters = in_f64(parameters);
  if (d.defined()) {
    check_floating(kOp, "d", d);
    check_shape(kOp, "d", d, {u.dim(2)});
    args.d = as_accumulation(d, u.dtype());
  }
  if (initial_state.defined()) {
    check_floating(kOp, "initial_state", initial_state);
    check_shape(kOp, "initial_state", initial_state, state);
    args.initial_state = as_accumulation(initial_state, u.dtype());
  }
  check_same_device(kOp, {u, parameters.log_dt, d, initial_state});
  args.y = Tensor::empty(u.shape(), u.dtype(), u.device());
  args.last_state = Tensor::empty(state, accumulate, u.device());
  const std::vector<Tensor> inputs{u, parameters.log_dt, parameters.a_real_log, parameters.a_imag, parameters.c,
                                   d, initial_state};
  if (is_tracked(inputs)) {
    const int64_t chunks = (u.dim(1) + kScanChunk - 1) / kScanChunk;
    args.states = Tensor::empty({u.dim(0), chunks, 2, n, u.dim(2)}, accumulate, u.device());
  }
  LAMINA_LAUNCH(u.device(), (Work{12 * u.numel() * n, 2 * u.nbytes()}), s4d_scan_forward, args);
  const S4dParameters& p = args.parameters;
  record(kOp, inputs, {args.y, args.last_state}, {args.u, p.log_dt, p.a_real_log, p.a_imag, p.c, args.d, args.states},
         run_recurrence_backward);
  return {args.y, args.last_state};
}

}  // namespace lamina::ops
