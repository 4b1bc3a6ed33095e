#pragma once

#include <string_view>

#include "lamina/ops/activation/activation.h"
#include "lamina/ops/activation/gated_activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Weights quantized in blocks of 32 along `in`, ŵ = scale · q with one f16 scale per block:
///   q8  q in [−127, 127], scale = largest magnitude / 127                               8.5 bits per weight
///   q4  q in [−8, 7], the candidate scale with the smallest squared error               4.5 bits per weight
enum class QuantizedFormat : uint8_t { q8, q4 };
std::string_view name_of(QuantizedFormat format);  ///< "q8" or "q4"

/// A quantized weight [out, in]. Sixteen rows form a group, in the order kernels read them: first the scales [blocks,
/// 16], then per block the values [8, 16, 4] (k / 4, row, k % 4), unsigned. q8 stores q + 128 per byte. q4 stores q + 8
/// in two quarters [4, 16, 4], the second in the upper half of each byte.
struct QuantizedWeight {
  static constexpr int64_t kBlock = 32;  ///< weights per scale
  static constexpr int64_t kRows = 16;   ///< rows per group

  Tensor data;                                   ///< u8 [groups, group_bytes()], rows and columns padded with zeros
  int64_t out = 0;                               ///< rows of the weight
  int64_t in = 0;                                ///< columns of the weight
  QuantizedFormat format = QuantizedFormat::q8;  ///< of the values

  bool defined() const { return data.defined(); }                ///< whether there is a weight
  int64_t blocks() const { return (in + kBlock - 1) / kBlock; }  ///< blocks per row
  int64_t groups() const { return (out + kRows - 1) / kRows; }   ///< groups of kRows rows
  /// Bytes of the scales of a group, padded to a cache line.
  int64_t scale_bytes() const { return (blocks() * kRows * 2 + 63) / 64 * 64; }
  /// Bytes of a group: scales and values.
  int64_t group_bytes() const {
    return scale_bytes() + blocks() * kRows * (format == QuantizedFormat::q8 ? kBlock : kBlock / 2);
  }
};

/// Quantizes a weight [out, in] of any floating type. Throws Error for non-finite weights or a scale beyond f16. For a
/// CUDA device the host does the rounding, once.
QuantizedWeight quantize(const Tensor& weight, QuantizedFormat format);
/// ŵ, f32 [out, in].
Tensor dequantize(const QuantizedWeight& weight);

/// y = act(x̂ · ŵᵀ + bias)
///   x [..., in] f32, bf16 or f16; bias [out] or undefined; y [..., out] in the dtype of x
/// x̂ is x quantized to 8 bits in blocks of 32: q = round(x / scale) with scale = largest magnitude / 127 in f32.
/// Products within a block are exact integers; blocks are summed in f32. More than eight bf16 or f16 rows on a GPU are
/// not quantized: there x̂ = x. No gradient.
Tensor quantized_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias = {},
                        Activation activation = Activation::none);

/// gated_activation(quantized_linear(x, weight, bias), gate, options): the first half of a gated feed-forward network.
///   weight  [2·n, in], gate and up rows as gated_activation takes them; bias [2·n] or undefined; y [..., n]
/// Composed of these two operators. Few rows on a GPU take one launch if each half of the weight is a whole number of
/// groups. In that case, and on the CPU, gate and up are not rounded in between.
Tensor quantized_gated_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias, Gate gate,
                              const GateOptions& options = {});

}  // namespace lamina::ops
