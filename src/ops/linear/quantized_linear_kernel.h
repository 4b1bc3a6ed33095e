#pragma once

#include "lamina/ops/linear/quantized_linear.h"

namespace lamina::ops {

/// Kernel arguments.
struct Quantize {
  Tensor weight;  ///< f32 [out, in], contiguous
  QuantizedWeight to;
};
struct QuantizedLinear {
  Tensor x;  ///< [rows, in], contiguous; f32, on CUDA the dtype of x; y likewise
  QuantizedWeight weight;
  Tensor bias;  ///< f32 [out], or undefined
  Activation activation;
  Tensor y;                   ///< [rows, out]
  Tensor numbers;             ///< scratch i8 [rows, blocks · 32]; unused on CUDA
  Tensor scales;              ///< scratch f32 [rows, blocks]
  Tensor offset_corrections;  ///< scratch i32 [rows, blocks]: compensates the offset of the unsigned weights
};
/// At most kFewRows rows; each half of the weight is a whole number of groups.
struct QuantizedGatedLinear {
  QuantizedLinear product;  ///< except that y is [rows, n], without activation
  Gate gate;
  GateOptions options;
};

namespace cpu {
void quantize(const Quantize& args);
void dequantize(const QuantizedWeight& weight, const Tensor& to);
void quantized_linear(const QuantizedLinear& args);
}  // namespace cpu
namespace cuda {
void quantize(const Quantize& args);
void dequantize(const QuantizedWeight& weight, const Tensor& to);
void quantized_linear(const QuantizedLinear& args);
/// quantized_linear for at most kFewRows rows, in one launch; y is not empty.
void quantized_few_rows(const QuantizedLinear& args);
/// quantized_linear for every case; y is not empty.
void quantized_linear_by_mma(const QuantizedLinear& args);
void quantized_gated_linear(const QuantizedGatedLinear& args);
}  // namespace cuda

}  // namespace lamina::ops
