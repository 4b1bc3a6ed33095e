#pragma once

// The experts' products on the matrix units of compute capability 9.0; the strategy stands in grouped_wgmma.cuh.

#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda::wgmma {

enum class Form : uint8_t {
  rows,      ///< y[r] = weight[e] · x[r] + bias[e]: left is x [slots, depth], right weight [experts, width, depth]
  gradient,  ///< dx[r] = dy[r] · weight[e]: left is dy [slots, depth], right weight [experts, depth, width]
  weights    ///< dweight[e] = dyᵀ · x: left is dy [slots, height], right x [slots, width]
};

struct Product {
  const int64_t* offsets;
  int64_t experts, slots;
  int64_t depth;   ///< of rows and gradient
  int64_t height;  ///< of weights
  int64_t width;
  const float* bias;  ///< [experts, width], or null
  void* result;       ///< [slots, width] of the operands' type, or [experts, height, width] f32
  bool accumulate;    ///< add to the result
};

/// False, and nothing done, where the device has no such units or rows are not whole packs of 16 bytes. T is a half
/// type as the device knows it; nothing is empty.
template <class T>
bool multiply(const Device& device, Form form, const T* left, const T* right, const Product& product);

}  // namespace lamina::ops::cuda::wgmma
