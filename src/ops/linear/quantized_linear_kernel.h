#pragma once

#include "lamina/ops/linear/norm_linear.h"
#include "lamina/ops/linear/quantized_linear.h"

namespace lamina::ops {

/// Throws an Error that names `op` if quantized_linear() does not support the arguments.
void check_quantized_linear(const char* op, const Tensor& x, const QuantizedWeight& weight, const Tensor& bias);

/// The least number of rows for which CPUs with tiles of 8-bit integers (AMX) use them. It is lower for q4, whose
/// values must be unpacked in any case.
constexpr int64_t int8_tiled_rows(QuantizedFormat format) { return format == QuantizedFormat::q8 ? 64 : 32; }

/// Kernel arguments: quantizes `weight`.
struct Quantize {
  Tensor weight;  ///< f32 [out, in], contiguous
  QuantizedWeight to;
};
/// Kernel arguments of quantized_linear().
struct QuantizedLinear {
  Tensor x;  ///< [rows, in], contiguous; f32 on a CPU, any dtype of quantized_linear() on CUDA. y has the same dtype
  QuantizedWeight weight;
  Tensor bias;  ///< f32 [out], or undefined
  Activation activation;
  Tensor y;        ///< [rows, out]
  Tensor numbers;  ///< scratch i8 [padded rows, blocks · 32]; unused on CUDA
  Tensor scales;   ///< scratch f32 [padded rows, blocks]; unused on CUDA
  /// Scratch i32 [padded rows, blocks]; unused on CUDA. Corrects for the offset of the unsigned weights.
  Tensor offset_corrections;
};
/// Kernel arguments, for at most kMostGatedRows rows. Each half of the weight is a whole number of groups.
struct QuantizedGatedLinear {
  QuantizedLinear product;  ///< without activation; y is [rows, n]
  Gate gate;
  GateOptions options;
};
/// Kernel arguments of a product of at most kFewRows rows that may start with a norm and end with a gate.
struct QuantizedStream {
  QuantizedLinear product;  ///< y is [rows, n] if there is a gate
  bool gated = false;
  Gate gate = Gate::swiglu;
  GateOptions options;
  const RowNorm* norm = nullptr;  ///< weight contiguous f32, or undefined; no groups. Null: no norm
  Tensor residual;                ///< [n, rows, in], contiguous, or undefined
  Tensor h;                       ///< [rows, in], written if there is a residual
};

namespace cpu {
void quantize(const Quantize& args);
void dequantize(const QuantizedWeight& weight, const Tensor& to);
void quantized_linear(const QuantizedLinear& args);
/// A QuantizedStream of one row with one residual. A gate has whole groups and is not interleaved.
void quantized_norm_linear(const QuantizedStream& args);
}  // namespace cpu
namespace cuda {
void quantize(const Quantize& args);
void dequantize(const QuantizedWeight& weight, const Tensor& to);
void quantized_linear(const QuantizedLinear& args);
/// quantized_linear() for at most kFewRows rows, in one launch; y must not be empty.
void quantized_few_rows(const QuantizedLinear& args);
/// quantized_linear() by tensor cores. Supports every call; y must not be empty.
void quantized_linear_by_mma(const QuantizedLinear& args);
void quantized_gated_linear(const QuantizedGatedLinear& args);
void quantized_gated_few_rows(const QuantizedGatedLinear& args);
/// quantized_linear() for up to 64 16-bit rows, without quantizing x. This function and the following ones return
/// false, without doing anything, if they do not support the call.
bool quantized_column_split(const QuantizedLinear& args);
/// quantized_linear() for up to 48 16-bit rows and quantized_gated_linear() for up to 32, on compute capability 9.0.
bool quantized_slabs(const QuantizedLinear& args);
bool quantized_gated_slabs(const QuantizedGatedLinear& args);
/// quantized_linear() and quantized_gated_linear() for up to 256 16-bit rows, by wgmma.
bool quantized_cluster(const QuantizedLinear& args);
bool quantized_gated_cluster(const QuantizedGatedLinear& args);
/// Tries quantized_gated_slabs(), then quantized_gated_cluster(); `done` tells whether one of them ran.
void quantized_gated_rows(const QuantizedGatedLinear& args, bool& done);
/// quantized_linear() for many 16-bit rows: unpacks the weight to 16 bits and calls cuBLASLt.
bool quantized_dequantized(const QuantizedLinear& args);
/// A QuantizedStream in one launch, on compute capability 9.0. Returns false, without doing anything, if it does not
/// support the call.
bool quantized_weight_stream(const QuantizedStream& args);
/// quantized_weight_stream() for norm_linear(); `done` tells whether it ran.
void quantized_norm_linear(const QuantizedStream& args, bool& done);
}  // namespace cuda

}  // namespace lamina::ops
