#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Scales of 8-bit KV caches. The key and the value of each token and head have one scale each:
///   scale = largest magnitude / 127,  q = round(x / scale) in [−127, 127],  x̂ = scale · q
/// The cache is u8 and holds q + 128, as quantized weights do; the scales are f32 [batch, n_kv_heads, capacity]. For
/// floating-point caches both are undefined. v is also undefined if the cache has no values.
struct CacheScales {
  Tensor k;
  Tensor v;
};

/// Converts a u8 cache [..., d] with scales [...] back to a floating type. Any strides.
Tensor dequantize(const Tensor& cache, const Tensor& scales, DType dtype);

/// The scale for numbers of magnitude up to `largest`, and the factor to apply before rounding. A magnitude that is too
/// small to divide by gives zeros; a `largest` that is not finite gives a scale that is not finite.
struct RowScale {
  float scale;
  float inverse;
};
constexpr RowScale row_scale(float largest) {
  constexpr float kLeastMagnitude = 1e-30F;
  if (largest < kLeastMagnitude) return {0.0F, 0.0F};
  return {largest / 127.0F, 127.0F / largest};
}

/// Throws an Error that names `op` and the argument, unless a u8 cache [batch, n_kv_heads, capacity, d] has scales and
/// a floating-point cache has none.
void check_cache_scales(const char* op, const char* name, const Tensor& cache, const Tensor& scales);

}  // namespace lamina::ops
