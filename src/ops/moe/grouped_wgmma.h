#pragma once

// Grouped GEMM with wgmma (compute capability 9.0); grouped_wgmma.cuh explains the strategy.

#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda::wgmma {

/// The products of a grouped linear layer, in forward and backward.
enum class Form : uint8_t {
  rows,      ///< y[r] = weight[e] · x[r] + bias[e]: left is x [slots, depth], right weight [experts, width, depth]
  gradient,  ///< dx[r] = dy[r] · weight[e]: left is dy [slots, depth], right weight [experts, depth, width]
  weights    ///< dweight[e] = dyᵀ · x: left is dy [slots, height], right x [slots, width]
};

/// Sizes, bias and result of a product. Shapes are given at Form.
struct Product {
  const int64_t* offsets;
  int64_t experts, slots;
  int64_t depth;   ///< extent along k; for Form::rows and Form::gradient
  int64_t height;  ///< rows of the result; for Form::weights
  int64_t width;
  const float* bias;  ///< [experts, width], optional
  void* result;       ///< [slots, width] in the operands' dtype, or [experts, height, width] f32
  bool accumulate;    ///< add to the result instead of overwriting it
};

/// Computes the product. Returns false, without doing anything, if the device has no wgmma or rows are not multiples of
/// 16 bytes. T is a 16-bit device type; no extent is zero.
template <class T>
bool multiply(const Device& device, Form form, const T* left, const T* right, const Product& product);

}  // namespace lamina::ops::cuda::wgmma
