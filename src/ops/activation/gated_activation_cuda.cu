// One pass. A thread reads one pack (16 bytes) of gates and one of ups, or two neighbouring packs if they are
// interleaved, and writes one pack (forward) or two (backward). The grid is one-dimensional; a division finds the row
// of a pack, in 32 bits if the number of packs allows. Unaligned rows are processed element by element.
#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/activation/gated_activation_kernel.h"
#include "lamina/tensor/cuda/vector_access.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kThreads = 256;

template <class Function>
__device__ inline GateUp backward_of(const GateUnit& unit, Function function, GateUp in, float dout) {
  const float gate = min_nan(in.gate, unit.limit);
  const float up = max_nan(min_nan(in.up, unit.limit), -unit.limit);
  const ValueSlope f = function.both(unit.alpha * gate);
  return {in.gate > unit.limit ? 0.0F : dout * (up + unit.offset) * f.slope,
          fabsf(in.up) > unit.limit ? 0.0F : dout * (f.value * unit.inverse_alpha)};
}

/// Offsets in x of the gates and the ups of unit `index`. If interleaved: of the two halves of the unit's packed
/// elements.
template <int kWidth>
struct Places {
  int64_t first;
  int64_t second;
  template <class Index>
  __device__ Places(Index index, Index units, bool interleaved) {
    const Index row = index / units;
    const int64_t i = static_cast<int64_t>(index - row * units) * kWidth;
    const int64_t n = static_cast<int64_t>(units) * kWidth;
    first = static_cast<int64_t>(row) * 2 * n + (interleaved ? 2 * i : i);
    second = first + (interleaved ? kWidth : n);
  }
};

/// The j-th gate and up. a and b hold gates and ups, or, if interleaved, the first and the second half of the pairs.
template <class T, int kWidth>
__device__ inline GateUp pick(const Vec<T, kWidth>& a, const Vec<T, kWidth>& b, int j, bool interleaved) {
  if (!interleaved) return {to_float(a.values[j]), to_float(b.values[j])};
  if constexpr (kWidth == 1) return {to_float(a.values[0]), to_float(b.values[0])};
  const int at = 2 * j % kWidth;
  const Vec<T, kWidth>& from = 2 * j < kWidth ? a : b;
  return {to_float(from.values[at]), to_float(from.values[at + (kWidth > 1 ? 1 : 0)])};
}

/// One thread per unit of kWidth outputs. `Index` is a 32- or 64-bit integer that can hold the number of units.
template <class T, int kWidth, class Index, class Function>
__global__ void __launch_bounds__(kThreads)
    gate_kernel(const T* x, T* out, Index total, Index units, GateUnit unit, Function function) {
  using S = Vec<T, kWidth>;
  grid_dependency_wait();
  const Index at = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= total) return;
  const Places<kWidth> places(at, units, unit.interleaved);
  const S a = load_vector<S>(x + places.first);
  const S b = load_vector<S>(x + places.second);
  S result;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    result.values[j] = from_float<T>(gate_value(unit, function, pick(a, b, j, unit.interleaved)));
  }
  store_vector(out + static_cast<int64_t>(at) * kWidth, result);
}

template <class T, int kWidth, class Index, class Function>
__global__ void __launch_bounds__(kThreads)
    gate_gradient_kernel(const T* x, const T* dout, T* dx, Index total, Index units, GateUnit unit, Function function) {
  using S = Vec<T, kWidth>;
  const Index at = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= total) return;
  const Places<kWidth> places(at, units, unit.interleaved);
  const S a = load_vector<S>(x + places.first);
  const S b = load_vector<S>(x + places.second);
  const S grad = load_vector<S>(dout + static_cast<int64_t>(at) * kWidth);
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
  store_vector(dx + places.first, first);
  store_vector(dx + places.second, second);
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

/// Calls fn with the number of units: as uint32_t if it fits, else as int64_t.
template <class F>
void visit_count(int64_t units, const F& fn) {
  if (units < int64_t{1} << 31) return fn(static_cast<uint32_t>(units));
  fn(static_cast<uint64_t>(units));
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
    if (is_pack_aligned(x, n) && is_pack_aligned(out, n)) {
      const auto blocks = static_cast<unsigned>(blocks_for(total / kSize, kThreads));
      visit_gate<T>(gate, [&](auto f) {
        visit_count(total / kSize, [&](auto count) {
          using Index = decltype(count);
          launch_dependent(gate_kernel<T, kSize, Index, decltype(f)>, dim3(blocks), dim3(kThreads), 0, device, x, out,
                           count, static_cast<Index>(n / kSize), unit, f);
        });
      });
    } else {
      const auto blocks = static_cast<unsigned>(blocks_for(total, kThreads));
      launch_dependent(gate_kernel<T, 1, uint64_t, AnyGate<T>>, dim3(blocks), dim3(kThreads), 0, device, x, out,
                       static_cast<uint64_t>(total), static_cast<uint64_t>(n), unit, AnyGate<T>{gate});
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
    if (is_pack_aligned(x, n) && is_pack_aligned(dout, n) && is_pack_aligned(dx, n)) {
      const int blocks = blocks_for(total / kSize, kThreads);
      visit_gate<T>(gate, [&](auto f) {
        visit_count(total / kSize, [&](auto count) {
          gate_gradient_kernel<T, kSize>
              <<<blocks, kThreads, 0, stream>>>(x, dout, dx, count, static_cast<decltype(count)>(n / kSize), unit, f);
        });
      });
    } else {
      const int blocks = blocks_for(total, kThreads);
      gate_gradient_kernel<T, 1><<<blocks, kThreads, 0, stream>>>(x, dout, dx, static_cast<uint64_t>(total),
                                                                  static_cast<uint64_t>(n), unit, AnyGate<T>{gate});
    }
    check_launch("gated_activation");
  });
}

}  // namespace lamina::ops::cuda
