#pragma once

// Loops over the elements of contiguous tensors. A pack is 16 bytes of neighbouring elements, one load or store. With
// one input, a block takes kElementThreads · kElementPacks packs, and every thread loads all of its packs before it
// computes. With two inputs a thread takes one pack of each. Elements after the last whole pack, or all elements of
// unaligned tensors, are processed one by one.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

constexpr int kElementThreads = 256;
constexpr int kElementPacks = 4;

/// y = f(x), computed in f32. The first `packs` packs are vectorized; the remaining elements of n are done one by one.
template <class T, class F>
__global__ void __launch_bounds__(kElementThreads) map_kernel(const T* x, T* y, int64_t n, int64_t packs, F f) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kElementThreads * kElementPacks) + threadIdx.x;
  Pack<T> held[kElementPacks];
#pragma unroll
  for (int k = 0; k < kElementPacks; ++k) {
    const int64_t at = first + k * kElementThreads;
    if (at < packs) held[k] = load_pack(x + at * kSize);
  }
#pragma unroll
  for (int k = 0; k < kElementPacks; ++k) {
    const int64_t at = first + k * kElementThreads;
    if (at >= packs) break;
#pragma unroll
    for (int j = 0; j < kSize; ++j) held[k].values[j] = from_float<T>(f(to_float(held[k].values[j])));
    store_pack(y + at * kSize, held[k]);
  }
  const int64_t step = static_cast<int64_t>(gridDim.x) * kElementThreads;
  for (int64_t i = packs * kSize + static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x; i < n; i += step) {
    y[i] = from_float<T>(f(to_float(x[i])));
  }
}

/// dx = f(x, dy), computed in f32; `packs` as in map_kernel.
template <class T, class F>
__global__ void __launch_bounds__(kElementThreads)
    map_gradient_kernel(const T* x, const T* dy, T* dx, int64_t n, int64_t packs, F f) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (at < packs) {
    const Pack<T> grads = load_pack(dy + at * kSize);
    Pack<T> held = load_pack(x + at * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      held.values[j] = from_float<T>(f(to_float(held.values[j]), to_float(grads.values[j])));
    }
    store_pack(dx + at * kSize, held);
  }
  const int64_t step = static_cast<int64_t>(gridDim.x) * kElementThreads;
  for (int64_t i = packs * kSize + at; i < n; i += step) {
    dx[i] = from_float<T>(f(to_float(x[i]), to_float(dy[i])));
  }
}

/// Number of whole packs in n elements; 0 if one of the pointers is not 16-byte aligned.
template <class T, class... Pointers>
int64_t whole_packs(int64_t n, const Pointers*... pointers) {
  const bool aligned = (... && (reinterpret_cast<uintptr_t>(pointers) % 16 == 0));
  return aligned ? n / Pack<T>::kSize : 0;
}

/// Number of blocks: `per_block` packs each, or one thread per element if there are no packs.
inline int element_blocks(int64_t n, int64_t packs, int per_block) {
  return packs > 0 ? blocks_for(packs, per_block) : blocks_for(n, kElementThreads);
}

/// y = f(x) for contiguous tensors of element type E; `op` names the operator in error messages.
template <class E, class F>
void map_elements_of(const char* op, const Tensor& x_in, const Tensor& y_in, const F& f) {
  using T = DeviceType<E>;
  const int64_t n = y_in.numel();
  if (n == 0) return;
  const T* x = device_data<E>(x_in);
  T* y = device_data<E>(y_in);
  const int64_t packs = whole_packs<T>(n, x, y);
  const int blocks = element_blocks(n, packs, kElementThreads * kElementPacks);
  map_kernel<<<blocks, kElementThreads, 0, stream_of(y_in.device())>>>(x, y, n, packs, f);
  check_launch(op);
}

template <class E, class F>
void map_gradients_of(const char* op, const Tensor& x_in, const Tensor& dy_in, const Tensor& dx_in, const F& f) {
  using T = DeviceType<E>;
  const int64_t n = dx_in.numel();
  if (n == 0) return;
  const T* x = device_data<E>(x_in);
  const T* dy = device_data<E>(dy_in);
  T* dx = device_data<E>(dx_in);
  const int64_t packs = whole_packs<T>(n, x, dy, dx);
  const int blocks = element_blocks(n, packs, kElementThreads);
  map_gradient_kernel<<<blocks, kElementThreads, 0, stream_of(dx_in.device())>>>(x, dy, dx, n, packs, f);
  check_launch(op);
}

/// map_elements_of for any floating dtype; make(TypeTag<T>{}) returns the function for device type T.
template <class Make>
void map_elements(const char* op, const Tensor& x, const Tensor& y, const Make& make) {
  visit_floating(op, x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    map_elements_of<E>(op, x, y, make(TypeTag<DeviceType<E>>{}));
  });
}
template <class Make>
void map_gradients(const char* op, const Tensor& x, const Tensor& dy, const Tensor& dx, const Make& make) {
  visit_floating(op, x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    map_gradients_of<E>(op, x, dy, dx, make(TypeTag<DeviceType<E>>{}));
  });
}

/// Exponential and reciprocal for results of type T: accurate to a few ulp for f32; for 16-bit types the hardware
/// approximation (about 2^-21), because the result is rounded anyway.
template <class T>
__device__ inline float exp_for(float x) {
  return fast_exp2(x * kLog2E);
}
template <>
__device__ inline float exp_for<float>(float x) {
  return expf(x);
}
template <class T>
__device__ inline float reciprocal_for(float x) {
  return reciprocal(x);
}
template <>
__device__ inline float reciprocal_for<float>(float x) {
  return 1.0F / x;
}

/// σ(x) and σ(−x), both without cancellation.
struct SigmoidPair {
  float at_x;
  float at_minus_x;
};
template <class T>
__device__ inline SigmoidPair sigmoid_pair(float x) {
  const float e = exp_for<T>(-fabsf(x));  // <= 1, so 1 + e cannot overflow
  const float large = reciprocal_for<T>(1.0F + e);
  const float small = e * large;
  return x >= 0.0F ? SigmoidPair{large, small} : SigmoidPair{small, large};
}

/// 1 − tanh²(x) = 4·σ(2x)·σ(−2x).
template <class T>
__device__ inline float tanh_slope(float x) {
  const SigmoidPair s = sigmoid_pair<T>(2.0F * x);
  return 4.0F * s.at_x * s.at_minus_x;
}

}  // namespace lamina::cuda
