#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// 8-bit KV caches. The keys and the values of a token and head have one scale each:
///   scale = largest magnitude / 127,  q = round(x / scale) in [−127, 127],  x̂ = scale · q
/// The cache is u8 and holds q + 128, as quantized weights do; the scales are f32 [batch, n_kv_heads, capacity]. Both
/// are undefined for floating-point caches, and v is undefined if the cache has no values.
struct CacheScales {
  Tensor k;
  Tensor v;
};

/// x̂ in a floating type from u8 [..., d] and scales [...]; any strides.
Tensor dequantize(const Tensor& cache, const Tensor& scales, DType dtype);

/// The scale for numbers up to `largest`, and the factor applied before rounding. Magnitudes too small to divide by
/// become zero; a non-finite `largest` gives a non-finite scale.
struct RowScale {
  float scale;
  float inverse;
};
constexpr RowScale row_scale(float largest) {
  constexpr float kLeastMagnitude = 1e-30F;
  if (largest < kLeastMagnitude) return {0.0F, 0.0F};
  return {largest / 127.0F, 127.0F / largest};
}

/// Throws unless a u8 cache [batch, n_kv_heads, capacity, d] has scales and a floating-point one has none.
void check_cache_scales(const char* op, const char* name, const Tensor& cache, const Tensor& scales);

}  // namespace lamina::ops
