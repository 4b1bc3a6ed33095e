// A thread runs the recurrence of one channel of one batch entry, with its state in a register. Loads of a warp are
// coalesced, because its lanes are adjacent channels. Backward first recomputes the states into a buffer and then runs
// backwards over them. The gradients of the decays are summed over the batch in order.
#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/rg_lru_kernel.h"
#include "lamina/ops/ssm/scan.cuh"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::sigmoid_pair;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr const char* kOp = "rg_lru";
// Small blocks, because every thread runs over the whole sequence and there are few threads.
constexpr int kThreads = 64;

template <class D>
struct LruInputs {
  const D *x, *input, *recurrence;
  const float *decay, *initial, *begun;
  int64_t batch, seq, channels;
};

template <class T>
LruInputs<DeviceType<T>> inputs_of(const RgLruForward& f) {
  return {device_data<T>(f.x),
          device_data<T>(f.input),
          device_data<T>(f.recurrence),
          device_data<float>(f.decay),
          device_data<float>(f.initial_state),
          device_data<float>(f.begun),
          f.x.dim(0),
          f.x.dim(1),
          f.x.dim(2)};
}

/// The gates and decay of one position; `rest` is 1 − a².
struct Gates {
  float r, r_rest, i, i_rest, a, rest, scale;

  template <class D>
  __device__ Gates(const LruInputs<D>& in, float rate, int64_t at, bool first) {
    const auto recurrence = sigmoid_pair<float>(to_float(in.recurrence[at]));
    const auto input = sigmoid_pair<float>(to_float(in.input[at]));
    r = recurrence.at_x;
    r_rest = recurrence.at_minus_x;
    i = input.at_x;
    i_rest = input.at_minus_x;
    const float log_a = -rate * r;
    a = expf(log_a);
    rest = -expm1f(2.0F * log_a);
    scale = first ? 1.0F : sqrtf(rest);
  }
};

template <class D>
__global__ void forward_kernel(LruInputs<D> in, D* y, float* last) {
  const int64_t row = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (row >= in.batch * in.channels) return;
  const int64_t entry = row / in.channels;
  const int64_t channel = row % in.channels;
  const float rate = static_cast<float>(kLruRate) * softplus(in.decay[channel]);
  const bool begun = in.begun != nullptr && in.begun[entry] != 0.0F;
  float h = in.initial != nullptr ? in.initial[row] : 0.0F;
  for (int64_t t = 0; t < in.seq; ++t) {
    const int64_t at = (entry * in.seq + t) * in.channels + channel;
    const Gates g(in, rate, at, t == 0 && !begun);
    h = fmaf(g.a, h, g.scale * g.i * to_float(in.x[at]));
    y[at] = from_float<D>(h);
  }
  last[row] = h;
}

template <class D>
struct LruGradients {
  const D* dy;
  const float* dlast;
  float* states;
  D *dx, *dinput, *drecurrence;
  float *ddecay, *dinitial;  // ddecay [batch, channels]
};

template <class D>
__global__ void backward_kernel(LruInputs<D> in, LruGradients<D> out) {
  const int64_t row = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (row >= in.batch * in.channels) return;
  const int64_t entry = row / in.channels;
  const int64_t channel = row % in.channels;
  const float rate = static_cast<float>(kLruRate) * softplus(in.decay[channel]);
  const bool begun = in.begun != nullptr && in.begun[entry] != 0.0F;
  float h = in.initial != nullptr ? in.initial[row] : 0.0F;
  for (int64_t t = 0; t < in.seq; ++t) {
    const int64_t at = (entry * in.seq + t) * in.channels + channel;
    const Gates g(in, rate, at, t == 0 && !begun);
    out.states[at] = h;
    h = fmaf(g.a, h, g.scale * g.i * to_float(in.x[at]));
  }
  constexpr auto kFlattest = static_cast<float>(1.0 / (kLruSteepest * kLruSteepest));
  float grad = out.dlast != nullptr ? out.dlast[row] : 0.0F;
  float sum = 0.0F;
  for (int64_t t = in.seq - 1; t >= 0; --t) {
    const int64_t at = (entry * in.seq + t) * in.channels + channel;
    const bool first = t == 0 && !begun;
    const Gates g(in, rate, at, first);
    const float x = to_float(in.x[at]);
    grad += to_float(out.dy[at]);
    out.dx[at] = from_float<D>(grad * g.scale * g.i);
    out.dinput[at] = from_float<D>(grad * g.scale * x * g.i * g.i_rest);
    float dlog = grad * g.a * out.states[at];
    if (!first) dlog -= grad * g.i * x * 2.0F * g.a * g.a / sqrtf(fmaxf(4.0F * g.rest, kFlattest));
    sum -= g.r * dlog;
    out.drecurrence[at] = from_float<D>(-rate * dlog * g.r * g.r_rest);
    grad *= g.a;
  }
  out.ddecay[row] = sum * static_cast<float>(kLruRate) * sigmoid(in.decay[channel]);
  if (out.dinitial != nullptr) out.dinitial[row] = grad;
}

template <class T>
void forward(const RgLruForward& args) {
  using D = DeviceType<T>;
  const int blocks = lamina::cuda::blocks_for(args.last_state.numel(), kThreads);
  forward_kernel<D><<<blocks, kThreads, 0, stream_of(args.x.device())>>>(inputs_of<T>(args), device_data<T>(args.y),
                                                                         device_data<float>(args.last_state));
  check_launch(kOp);
}

template <class T>
void backward(const RgLruBackward& args) {
  using D = DeviceType<T>;
  const Tensor& x = args.forward.x;
  const Tensor parts = Tensor::empty({x.dim(0), x.dim(2)}, DType::f32, x.device());
  const LruGradients<D> out{device_data<T>(args.dy),
                            device_data<float>(args.dlast_state),
                            device_data<float>(args.states),
                            device_data<T>(args.dx),
                            device_data<T>(args.dinput),
                            device_data<T>(args.drecurrence),
                            parts.data<float>(),
                            device_data<float>(args.dinitial_state)};
  const int blocks = lamina::cuda::blocks_for(parts.numel(), kThreads);
  backward_kernel<D><<<blocks, kThreads, 0, stream_of(x.device())>>>(inputs_of<T>(args.forward), out);
  check_launch(kOp);
  add_parts(kOp, parts.data<float>(), x.dim(0), x.dim(2), args.ddecay);
}

}  // namespace

void rg_lru_forward(const RgLruForward& args) {
  if (args.last_state.numel() == 0) return;
  lamina::cuda::visit_floating(kOp, args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

void rg_lru_backward(const RgLruBackward& args) {
  if (args.forward.x.dim(0) * args.forward.x.dim(2) == 0) return clear(kOp, args.ddecay);
  lamina::cuda::visit_floating(kOp, args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
