#pragma once

#include <string_view>

#include "lamina/ops/activation/activation.h"
#include "lamina/ops/activation/gated_activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Weights in blocks of 32 along `in`, ŵ = scale · q with one f16 scale for each block:
///   q8  q in [−127, 127], scale = largest magnitude / 127                               8.5 bits a weight
///   q4  q in [−8, 7], the scale of a few with the smallest squared error               4.5 bits a weight
enum class QuantizedFormat : uint8_t { q8, q4 };
std::string_view name_of(QuantizedFormat format);

/// A weight [out, in], rounded. Sixteen rows lie together, as the kernels read them: of a group of rows first the
/// scales [blocks, 16], then for each block the numbers [8, 16, 4] (k / 4, row, k % 4), without a sign: q + 128 a byte;
/// for q4 q + 8, of two quarters [4, 16, 4] the second in the upper half of each byte.
struct QuantizedWeight {
  static constexpr int64_t kBlock = 32;  ///< weights that share a scale
  static constexpr int64_t kRows = 16;   ///< rows that lie together

  Tensor data;  ///< u8 [groups, group_bytes()], rows and columns padded with zeros
  int64_t out = 0;
  int64_t in = 0;
  QuantizedFormat format = QuantizedFormat::q8;

  bool defined() const { return data.defined(); }
  int64_t blocks() const { return (in + kBlock - 1) / kBlock; }
  int64_t groups() const { return (out + kRows - 1) / kRows; }
  /// Bytes of one group's scales, padded to a cache line, and of all of it.
  int64_t scale_bytes() const { return (blocks() * kRows * 2 + 63) / 64 * 64; }
  int64_t group_bytes() const {
    return scale_bytes() + blocks() * kRows * (format == QuantizedFormat::q8 ? kBlock : kBlock / 2);
  }
};

/// weight [out, in] of any floating type → rounded. An Error where a number is not finite, or beyond an f16 scale. On a
/// cuda device the numbers are rounded by the host, once.
QuantizedWeight quantize(const Tensor& weight, QuantizedFormat format);
/// ŵ, f32 [out, in].
Tensor dequantize(const QuantizedWeight& weight);

/// y = act(x̂ · ŵᵀ + bias)
///   x [..., in] f32, bf16 or f16; bias [out] or undefined; y [..., out] in x's type
/// x̂ is x rounded to 8 bits in blocks of 32, q = round(x / scale) with scale = largest magnitude / 127 in f32: products
/// within a block are then whole numbers and exact, and blocks are summed in f32. No gradient.
Tensor quantized_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias = {},
                        Activation activation = Activation::none);

/// gated_activation(quantized_linear(x, weight, bias), gate, options): how a gated feed-forward begins.
///   weight  [2·n, in], gate and up joined as gated_activation takes them; bias [2·n] or undefined; y [..., n]
/// It is these two operators; few rows on a GPU take one launch where the halves of the weight are whole groups of
/// rows. There and on the CPU gate and up are not rounded between them.
Tensor quantized_gated_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias, Gate gate,
                              const GateOptions& options = {});

/// What the kernels are given.
struct Quantize {
  Tensor weight;  ///< f32 [out, in], dense
  QuantizedWeight to;
};
struct QuantizedLinear {
  Tensor x;  ///< [rows, in], dense; f32, on a cuda device x's own type, and y likewise
  QuantizedWeight weight;
  Tensor bias;  ///< f32 [out], or undefined
  Activation activation;
  Tensor y;         ///< [rows, out]
  Tensor numbers;   ///< scratch i8 [rows, blocks · 32]; a cuda device has its own
  Tensor scales;    ///< scratch f32 [rows, blocks]
  Tensor corrects;  ///< scratch i32 [rows, blocks]: what makes up for weights stored without a sign
};
/// At most kFewRows rows; halves of the weight that are whole groups.
struct QuantizedGatedLinear {
  QuantizedLinear product;  ///< but y is [rows, n], and there is no activation
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
void quantized_gated_linear(const QuantizedGatedLinear& args);
}  // namespace cuda

}  // namespace lamina::ops
