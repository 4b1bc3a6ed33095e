// One pass: a thread takes one pack of outputs, that is a pack of gates and one of ups (two neighbouring packs where
// they are interleaved), and writes one pack (forward) or two (backward). Grids are flat: the row of a pack comes from
// one division. Rows that packs do not fit, or odd addresses, are walked element by element.
#include "lamina/ops/activation/gated_activation.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: what kernels share

constexpr int kThreads = 256;

template <class Function>
__device__ inline GateUp backward_of(const GateUnit& unit, Function function, GateUp in, float dout) {
  const float gate = in.gate > unit.limit ? unit.limit : in.gate;
  const float up = in.up > unit.limit ? unit.limit : in.up < -unit.limit ? -unit.limit : in.up;
  const ValueSlope f = function.both(unit.alpha * gate);
  return {in.gate > unit.limit ? 0.0F : dout * (up + unit.offset) * f.slope,
          fabsf(in.up) > unit.limit ? 0.0F : dout * (f.value * unit.inverse_alpha)};
}

/// Where the gates and the ups (or the first and the second half of the turns) of unit `index` lie.
template <int kWidth>
struct Places {
  int64_t first;
  int64_t second;
  __device__ Places(int64_t index, int64_t units, int64_t n, bool interleaved) {
    const int64_t row = index / units;
    const int64_t i = (index - row * units) * kWidth;
    first = row * 2 * n + (interleaved ? 2 * i : i);
    second = first + (interleaved ? kWidth : n);
  }
};

/// The j-th gate and up of two stretches.
template <class T, int kWidth>
__device__ inline GateUp pick(const Stretch<T, kWidth>& a, const Stretch<T, kWidth>& b, int j, bool interleaved) {
  if (!interleaved) return {to_float(a.values[j]), to_float(b.values[j])};
  if constexpr (kWidth == 1) return {to_float(a.values[0]), to_float(b.values[0])};
  const int at = 2 * j % kWidth;
  const Stretch<T, kWidth>& from = 2 * j < kWidth ? a : b;
  return {to_float(from.values[at]), to_float(from.values[at + (kWidth > 1 ? 1 : 0)])};
}

template <class T, int kWidth, class Function>
__global__ void __launch_bounds__(kThreads)
    gate_kernel(const T* x, T* out, int64_t total, int64_t units, int64_t n, GateUnit unit, Function function) {
  using S = Stretch<T, kWidth>;
  wait_for_previous();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < total; at += step) {
    const Places<kWidth> places(at, units, n, unit.interleaved);
    const S a = *reinterpret_cast<const S*>(x + places.first);
    const S b = *reinterpret_cast<const S*>(x + places.second);
    S result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      result.values[j] = from_float<T>(gate_value(unit, function, pick(a, b, j, unit.interleaved)));
    }
    store_whole(out + at * kWidth, result);
  }
}

template <class T, int kWidth, class Function>
__global__ void __launch_bounds__(kThreads)
    gate_gradient_kernel(const T* x, const T* dout, T* dx, int64_t total, int64_t units, int64_t n, GateUnit unit,
                         Function function) {
  using S = Stretch<T, kWidth>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < total; at += step) {
    const Places<kWidth> places(at, units, n, unit.interleaved);
    const S a = *reinterpret_cast<const S*>(x + places.first);
    const S b = *reinterpret_cast<const S*>(x + places.second);
    const S grad = *reinterpret_cast<const S*>(dout + at * kWidth);
    S first;
    S second;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const GateUp d = backward_of(unit, function, pick(a, b, j, unit.interleaved), to_float(grad.values[j]));
      if (!unit.interleaved || kWidth == 1) {
        first.values[j] = from_float<T>(d.gate);
        second.values[j] = from_float<T>(d.up);
      } else {
        S& into = 2 * j < kWidth ? first : second;
        into.values[2 * j % kWidth] = from_float<T>(d.gate);
        into.values[(2 * j + 1) % kWidth] = from_float<T>(d.up);
      }
    }
    store_whole(dx + places.first, first);
    store_whole(dx + places.second, second);
  }
}

template <class T, class F>
void visit_gate(Gate gate, const F& fn) {
  switch (gate) {
    case Gate::glu: return fn(Sigmoid<T>{});
    case Gate::reglu: return fn(Relu<T>{});
    case Gate::geglu: return fn(Gelu<T>{});
    case Gate::geglu_tanh: return fn(GeluTanh<T>{});
    case Gate::swiglu: return fn(Silu<T>{});
    case Gate::liglu: return fn(Identity<T>{});
  }
}

}  // namespace

void gated_activation_forward(const Tensor& x_in, Gate gate, const GateOptions& options, const Tensor& out_in) {
  const int64_t n = out_in.dim(-1);
  const int64_t total = out_in.numel();
  if (total == 0) return;
  const Device& device = x_in.device();
  const GateUnit unit(options);
  visit_floating("gated_activation", x_in.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    constexpr int kSize = Pack<T>::kSize;
    const T* x = device_data<E>(x_in);
    T* out = device_data<E>(out_in);
    if (fits_packs(x, n) && fits_packs(out, n)) {
      const auto blocks = static_cast<unsigned>(blocks_for(total / kSize, kThreads));
      visit_gate<T>(gate, [&](auto f) {
        launch_dependent(gate_kernel<T, kSize, decltype(f)>, dim3(blocks), dim3(kThreads), 0, device, x, out,
                         total / kSize, n / kSize, n, unit, f);
      });
    } else {
      const auto blocks = static_cast<unsigned>(blocks_for(total, kThreads));
      launch_dependent(gate_kernel<T, 1, AnyGate<T>>, dim3(blocks), dim3(kThreads), 0, device, x, out, total, n, n,
                       unit, AnyGate<T>{gate});
    }
    check_launch("gated_activation");
  });
}

void gated_activation_backward(const Tensor& x_in, const Tensor& dout_in, Gate gate, const GateOptions& options,
                               const Tensor& dx_in) {
  const int64_t n = dout_in.dim(-1);
  const int64_t total = dout_in.numel();
  if (total == 0) return;
  const cudaStream_t stream = stream_of(x_in.device());
  const GateUnit unit(options);
  visit_floating("gated_activation", x_in.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    constexpr int kSize = Pack<T>::kSize;
    const T* x = device_data<E>(x_in);
    const T* dout = device_data<E>(dout_in);
    T* dx = device_data<E>(dx_in);
    if (fits_packs(x, n) && fits_packs(dout, n) && fits_packs(dx, n)) {
      const int blocks = blocks_for(total / kSize, kThreads);
      visit_gate<T>(gate, [&](auto f) {
        gate_gradient_kernel<T, kSize>
            <<<blocks, kThreads, 0, stream>>>(x, dout, dx, total / kSize, n / kSize, n, unit, f);
      });
    } else {
      const int blocks = blocks_for(total, kThreads);
      gate_gradient_kernel<T, 1><<<blocks, kThreads, 0, stream>>>(x, dout, dx, total, n, n, unit, AnyGate<T>{gate});
    }
    check_launch("gated_activation");
  });
}

}  // namespace lamina::ops::cuda
