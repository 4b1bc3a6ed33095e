#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Caches of 8 bits. The keys and the values of a token and head share a scale each:
///   scale = largest magnitude / 127,  q = round(x / scale) in [−127, 127],  x̂ = scale · q
/// The cache is u8 and holds q + 128, as quantized weights do; the scales are f32 [batch, n_kv_heads, capacity]. Both
/// are undefined beside caches of a floating type, and v where there are no values.
struct CacheScales {
  Tensor k;
  Tensor v;
};

/// x̂ in a floating type from u8 [..., d] and scales [...], for both of any strides.
Tensor dequantize(const Tensor& cache, const Tensor& scales, DType dtype);

/// The scale of numbers up to `largest`, and what they are multiplied by before they are rounded. Magnitudes too small
/// for a quotient of normal numbers become zeros; what is not finite makes the scale so too.
struct RowScale {
  float scale;
  float inverse;
};
constexpr RowScale row_scale(float largest) {
  constexpr float kLeastMagnitude = 1e-30F;
  if (largest < kLeastMagnitude) return {0.0F, 0.0F};
  return {largest / 127.0F, 127.0F / largest};
}

/// Throws unless a u8 cache [batch, n_kv_heads, capacity, d] has its scales, and a floating one none.
void check_cache_scales(const char* op, const char* name, const Tensor& cache, const Tensor& scales);

}  // namespace lamina::ops
