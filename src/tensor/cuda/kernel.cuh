#pragma once

// Common to all kernels: device element types, 16-byte packs, warp and block reductions, dependent launches.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "lamina/tensor/cuda/runtime.h"

namespace lamina::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

// Maps tensor element types to device types.
template <class T>
struct DeviceTypeOf {
  using type = T;
};
template <>
struct DeviceTypeOf<bf16> {
  using type = __nv_bfloat16;
};
template <>
struct DeviceTypeOf<f16> {
  using type = __half;
};
template <class T>
using DeviceType = typename DeviceTypeOf<T>::type;

/// Device pointer to the first element of a tensor of type T; null for an undefined tensor.
template <class T>
DeviceType<T>* device_data(const Tensor& tensor) {
  return tensor.defined() ? reinterpret_cast<DeviceType<T>*>(tensor.data<T>()) : nullptr;
}

/// Calls fn(TypeTag<T>{}) for f32, bf16 and f16. Other dtypes are an Error: f64 works only on the CPU.
template <class F>
void visit_floating(const char* op, DType dtype, F&& fn) {
  switch (dtype) {
    case DType::bf16: return fn(TypeTag<bf16>{});
    case DType::f16: return fn(TypeTag<f16>{});
    case DType::f32: return fn(TypeTag<float>{});
    default: break;
  }
  throw Error(str(op, ": ", dtype, " is not supported on cuda; expected f32, bf16 or f16; use the cpu for f64"));
}

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float to_float(__half value) { return __half2float(value); }

template <class T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}

constexpr float kLog2E = 1.4426950408889634F;
constexpr float kLn2 = 0.6931471805599453F;

/// 2^x with an error of at most 2 ulp; 0 for −inf.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

/// 1/x with an error of at most 1 ulp; 0 for infinities.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

/// Minimum and maximum that propagate NaN.
__device__ inline float min_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;\n" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;\n" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

/// The elements of one 16-byte memory access.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];
};

/// kWidth elements of one memory access. kWidth is a power of two and the size at most 16 bytes.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Vec {
  T values[kWidth];
};

template <class T>
__device__ inline Pack<T> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}
/// Stores a Pack or Vec with an assignment of the whole. The compiler may still split it (see vector_access.cuh).
template <class P>
__device__ inline void store_vector_plain(void* to, const P& values) {
  using Word = std::conditional_t<
      sizeof(P) == 16, uint4,
      std::conditional_t<sizeof(P) == 8, uint2, std::conditional_t<sizeof(P) == 4, uint32_t, uint16_t>>>;
  static_assert(sizeof(P) == sizeof(Word));
  Word word;
  __builtin_memcpy(&word, &values, sizeof(P));
  *static_cast<Word*>(to) = word;
}
template <class T>
__device__ inline void store_pack(T* to, const Pack<T>& pack) {
  store_vector_plain(to, pack);
}

/// Whether rows of `width` elements that start at `pointer` can be read in packs.
template <class T>
bool is_pack_aligned(const T* pointer, int64_t width) {
  return width % Pack<T>::kSize == 0 && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

/// Sum over the warp; every lane gets it.
__device__ inline float warp_sum(float value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

/// Sum over the block; every thread gets it. The block has whole warps and at most 1024 threads. `scratch` holds 32
/// floats; the next call may reuse it at once.
__device__ inline float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = warp_sum(lane < static_cast<int>(blockDim.x) / kWarp ? scratch[lane] : 0.0F);
  __syncthreads();
  return value;
}
__device__ inline float block_max(float value, float* scratch) {
  value = warp_max(value);
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = warp_max(lane < static_cast<int>(blockDim.x) / kWarp ? scratch[lane] : -INFINITY);
  __syncthreads();
  return value;
}

/// Largest grid for which a launch may overlap with the previous kernel. In a larger grid only the first blocks could
/// overlap, but all blocks would pay for the wait.
constexpr int64_t kMaxDependentLaunchBlocks = 1024;

/// Programmatic dependent launch of a kernel that begins with grid_dependency_wait(). Its blocks are scheduled while
/// the previous kernel still runs, which hides launch latency in a chain of short kernels. Any number of such launches
/// may follow each other, also in a captured graph and mixed with ordinary launches. `cluster` adjacent blocks form a
/// thread block cluster (compute capability 9.0 or above).
template <class... Params, class... Args>
void launch_dependent_clusters(void (*kernel)(Params...), int cluster, dim3 grid, dim3 block, size_t shared,
                               const Device& device, Args&&... args) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  const bool few = int64_t{grid.x} * grid.y * grid.z <= kMaxDependentLaunchBlocks;
  if (few && has_dependent_launch(device)) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream_of(device);
  config.attrs = attributes;
  config.numAttrs = count;
  cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);  // check_launch() reports errors
}
template <class... Params, class... Args>
void launch_dependent(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, const Device& device,
                      Args&&... args) {
  launch_dependent_clusters(kernel, 1, grid, block, shared, device, std::forward<Args>(args)...);
}

/// Waits until all earlier work of the CUDA stream is complete and visible. Every thread must call it before accessing
/// memory. The next kernel's blocks may start only after this call, so at most two kernels overlap, and waiting for the
/// previous kernel means waiting for all earlier ones.
__device__ inline void grid_dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (int64_t{gridDim.x} * gridDim.y * gridDim.z > kMaxDependentLaunchBlocks) return;
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Prefetches 32 bytes into L2. Allowed before grid_dependency_wait(), as the only memory access, even if the previous
/// kernel writes there.
__device__ inline void prefetch_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)));
}

__device__ inline void report(FaultSlot* slot, Fault fault, long long value) {
  if (atomicCAS_system(&slot->fault, static_cast<int>(Fault::none), static_cast<int>(fault)) == 0) slot->value = value;
}

}  // namespace lamina::cuda
