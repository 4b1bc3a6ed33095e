#pragma once

// Single numbers of a floating type that is known only at run time: f32, bf16 or f16.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

/// Element `at` as float.
__device__ inline float load_number(const void* from, DType type, int64_t at) {
  if (type == DType::f32) return static_cast<const float*>(from)[at];
  if (type == DType::bf16) return to_float(static_cast<const __nv_bfloat16*>(from)[at]);
  return to_float(static_cast<const __half*>(from)[at]);
}

/// Stores `value` as element `at`, rounded to the type.
__device__ inline void store_number(void* to, DType type, int64_t at, float value) {
  if (type == DType::f32) {
    static_cast<float*>(to)[at] = value;
  } else if (type == DType::bf16) {
    static_cast<__nv_bfloat16*>(to)[at] = from_float<__nv_bfloat16>(value);
  } else {
    static_cast<__half*>(to)[at] = from_float<__half>(value);
  }
}

/// `value` rounded to the type and back.
__device__ inline float rounded_to(DType type, float value) {
  if (type == DType::bf16) return to_float(from_float<__nv_bfloat16>(value));
  if (type == DType::f16) return to_float(from_float<__half>(value));
  return value;
}

}  // namespace lamina::cuda
