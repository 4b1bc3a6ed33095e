// A thread runs the recurrence of one channel of one batch entry, with its state in registers. Loads of a warp are
// coalesced, because its lanes are adjacent channels. Backward first recomputes the states into a buffer and then runs
// backwards over them. The gradients of decay and bonus are summed over the batch in order.
#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/wkv_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::check_launch;
using lamina::cuda::device_data;
using lamina::cuda::DeviceType;
using lamina::cuda::from_float;
using lamina::cuda::stream_of;
using lamina::cuda::to_float;

constexpr const char* kWkvOp = "wkv";
// Small blocks, because every thread runs over the whole sequence and there are few threads.
constexpr int kWkvThreads = 64;

template <class D>
struct WkvInputs {
  const D *k, *v;
  const float *decay, *first, *initial;
  int64_t batch, seq, channels;
};

template <class T>
WkvInputs<DeviceType<T>> inputs_of(const WkvForward& f) {
  return {device_data<T>(f.k),
          device_data<T>(f.v),
          device_data<float>(f.decay),
          device_data<float>(f.first),
          device_data<float>(f.initial_state),
          f.k.dim(0),
          f.k.dim(1),
          f.k.dim(2)};
}

/// The sums A = a e^p and B = b e^p of one channel.
struct WkvState {
  float a = 0.0F;
  float b = 0.0F;
  float p = static_cast<float>(kEmptyExponent);

  /// The initial state from [batch, 3, channels]. It is empty if undefined or if b = 0.
  template <class D>
  __device__ static WkvState initial(const WkvInputs<D>& in, int64_t entry, int64_t channel) {
    WkvState s;
    if (in.initial == nullptr) return s;
    const float* from = in.initial + entry * 3 * in.channels + channel;
    if (from[in.channels] == 0.0F) return s;
    s.a = from[0];
    s.b = from[in.channels];
    s.p = from[2 * in.channels];
    return s;
  }
  __device__ void move_on(float w, float k, float v) {
    const float largest = fmaxf(w + p, k);
    const float old_weight = expf(w + p - largest);
    const float new_weight = expf(k - largest);
    a = fmaf(old_weight, a, new_weight * v);
    b = fmaf(old_weight, b, new_weight);
    p = largest;
  }
};

template <class D>
__global__ void forward_kernel(WkvInputs<D> in, D* y, float* last) {
  const int64_t row = blockIdx.x * int64_t{kWkvThreads} + threadIdx.x;
  if (row >= in.batch * in.channels) return;
  const int64_t entry = row / in.channels;
  const int64_t channel = row % in.channels;
  const float w = -expf(in.decay[channel]);
  const float bonus = in.first[channel];
  WkvState s = WkvState::initial(in, entry, channel);
  for (int64_t t = 0; t < in.seq; ++t) {
    const int64_t at = (entry * in.seq + t) * in.channels + channel;
    const float k = to_float(in.k[at]);
    const float v = to_float(in.v[at]);
    const float largest = fmaxf(s.p, bonus + k);
    const float old_weight = expf(s.p - largest);
    const float new_weight = expf(bonus + k - largest);
    y[at] = from_float<D>(fmaf(old_weight, s.a, new_weight * v) / fmaf(old_weight, s.b, new_weight));
    s.move_on(w, k, v);
  }
  float* to = last + entry * 3 * in.channels + channel;
  to[0] = s.a;
  to[in.channels] = s.b;
  to[2 * in.channels] = s.b == 0.0F ? 0.0F : s.p;
}

template <class D>
struct WkvGradients {
  const D* dy;
  float* states;
  D *dk, *dv;
  float *ddecay, *dfirst;  // [batch, channels]
};

template <class D>
__global__ void backward_kernel(WkvInputs<D> in, WkvGradients<D> out) {
  const int64_t row = blockIdx.x * int64_t{kWkvThreads} + threadIdx.x;
  if (row >= in.batch * in.channels) return;
  const int64_t entry = row / in.channels;
  const int64_t channel = row % in.channels;
  const int64_t plane = in.batch * in.seq * in.channels;
  const float w = -expf(in.decay[channel]);
  const float bonus = in.first[channel];
  WkvState s = WkvState::initial(in, entry, channel);
  for (int64_t t = 0; t < in.seq; ++t) {
    const int64_t at = (entry * in.seq + t) * in.channels + channel;
    out.states[at] = s.a;
    out.states[plane + at] = s.b;
    out.states[2 * plane + at] = s.p;
    s.move_on(w, to_float(in.k[at]), to_float(in.v[at]));
  }
  float after = s.p;
  float alpha = 0.0F;
  float beta = 0.0F;
  float dw = 0.0F;
  float dbonus = 0.0F;
  for (int64_t t = in.seq - 1; t >= 0; --t) {
    const int64_t at = (entry * in.seq + t) * in.channels + channel;
    const float k = to_float(in.k[at]);
    const float v = to_float(in.v[at]);
    const float a = out.states[at];
    const float b = out.states[plane + at];
    const float p = out.states[2 * plane + at];
    const float old_weight = expf(w + p - after);
    const float new_weight = expf(k - after);
    const float largest = fmaxf(p, bonus + k);
    const float y_old = expf(p - largest);
    const float y_new = expf(bonus + k - largest);
    const float below = fmaf(y_old, b, y_new);
    const float y = fmaf(y_old, a, y_new * v) / below;
    const float g = to_float(out.dy[at]) / below;
    const float du = y_new * g * (v - y);
    dbonus += du;
    out.dk[at] = from_float<D>(fmaf(new_weight, fmaf(alpha, v, beta), du));
    out.dv[at] = from_float<D>(fmaf(new_weight, alpha, y_new * g));
    dw = fmaf(old_weight, fmaf(alpha, a, beta * b), dw);
    alpha = fmaf(old_weight, alpha, y_old * g);
    beta = fmaf(old_weight, beta, -y_old * g * y);
    after = p;
  }
  out.ddecay[row] = dw * w;
  out.dfirst[row] = dbonus;
}

template <class T>
void forward(const WkvForward& args) {
  using D = DeviceType<T>;
  const int blocks = lamina::cuda::blocks_for(args.k.dim(0) * args.k.dim(2), kWkvThreads);
  forward_kernel<D><<<blocks, kWkvThreads, 0, stream_of(args.k.device())>>>(inputs_of<T>(args), device_data<T>(args.y),
                                                                            device_data<float>(args.last_state));
  check_launch(kWkvOp);
}

template <class T>
void backward(const WkvBackward& args) {
  using D = DeviceType<T>;
  const Tensor& k = args.forward.k;
  const Tensor parts = Tensor::empty({2, k.dim(0), k.dim(2)}, DType::f32, k.device());
  float* decays = parts.data<float>();
  float* firsts = decays + k.dim(0) * k.dim(2);
  const WkvGradients<D> out{device_data<T>(args.dy),
                            device_data<float>(args.states),
                            device_data<T>(args.dk),
                            device_data<T>(args.dv),
                            decays,
                            firsts};
  const int blocks = lamina::cuda::blocks_for(k.dim(0) * k.dim(2), kWkvThreads);
  backward_kernel<D><<<blocks, kWkvThreads, 0, stream_of(k.device())>>>(inputs_of<T>(args.forward), out);
  check_launch(kWkvOp);
  add_parts(kWkvOp, decays, k.dim(0), k.dim(2), args.ddecay);
  add_parts(kWkvOp, firsts, k.dim(0), k.dim(2), args.dfirst);
}

}  // namespace

void wkv_forward(const WkvForward& args) {
  if (args.last_state.numel() == 0) return;
  lamina::cuda::visit_floating(kWkvOp, args.k.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

void wkv_backward(const WkvBackward& args) {
  if (args.forward.k.dim(0) * args.forward.k.dim(2) == 0) {
    clear(kWkvOp, args.ddecay);
    return clear(kWkvOp, args.dfirst);
  }
  lamina::cuda::visit_floating(kWkvOp, args.dy.dtype(),
                               [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
