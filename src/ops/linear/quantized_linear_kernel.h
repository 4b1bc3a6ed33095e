#pragma once

#include "lamina/ops/linear/norm_linear.h"
#include "lamina/ops/linear/quantized_linear.h"

namespace lamina::ops {

/// Throws an Error naming `op` if quantized_linear does not support the arguments.
void check_quantized_linear(const char* op, const Tensor& x, const QuantizedWeight& weight, const Tensor& bias);

/// From this number of rows on, CPUs with tiles of 8-bit integers use them; 4-bit weights are unpacked in any case.
constexpr int64_t int8_tiled_rows(QuantizedFormat format) { return format == QuantizedFormat::q8 ? 64 : 32; }

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
  Tensor numbers;             ///< scratch i8 [padded rows, blocks · 32]; unused on CUDA
  Tensor scales;              ///< scratch f32 [padded rows, blocks]
  Tensor offset_corrections;  ///< scratch i32 [padded rows, blocks]: compensates the offset of the unsigned weights
};
/// At most kMostFusedRows rows; each half of the weight is a whole number of groups.
struct QuantizedGatedLinear {
  QuantizedLinear product;  ///< except that y is [rows, n], without activation
  Gate gate;
  GateOptions options;
};
/// A product of at most kFewRows rows that may start with a norm and end with a gate.
struct QuantizedStream {
  QuantizedLinear product;  ///< y is [rows, n] with a gate
  bool gated = false;
  Gate gate = Gate::swiglu;
  GateOptions options;
  const RowNorm* norm = nullptr;  ///< weight contiguous f32, or undefined; no groups; null: no norm
  Tensor residual;                ///< [n, rows, in], contiguous, or undefined
  Tensor h;                       ///< [rows, in], written if there is a residual
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
void quantized_gated_few_rows(const QuantizedGatedLinear& args);
/// quantized_linear for up to 64 16-bit rows; x is not quantized. This and the following return false, and have done
/// nothing, if they do not support the call.
bool quantized_column_split(const QuantizedLinear& args);
/// quantized_linear for up to 48 16-bit rows on a GPU with compute capability 9.0, and quantized_gated_linear for up
/// to 32.
bool quantized_slabs(const QuantizedLinear& args);
bool quantized_gated_slabs(const QuantizedGatedLinear& args);
/// Both products for up to 256 rows, by wgmma.
bool quantized_cluster(const QuantizedLinear& args);
bool quantized_gated_cluster(const QuantizedGatedLinear& args);
/// quantized_gated_slabs() or quantized_gated_cluster(); sets `done` to the result.
void quantized_gated_rows(const QuantizedGatedLinear& args, bool& done);
/// quantized_linear for many 16-bit rows: cuBLASLt multiplies a 16-bit copy of the weight.
bool quantized_dequantized(const QuantizedLinear& args);
/// One launch on a GPU with compute capability 9.0. Returns false, and has done nothing, if it does not support the
/// call.
bool quantized_weight_stream(const QuantizedStream& args);
/// quantized_weight_stream() as norm_linear dispatches it; sets `done` to its result.
void quantized_norm_linear(const QuantizedStream& args, bool& done);
}  // namespace cuda

}  // namespace lamina::ops
