#pragma once

#include <string_view>

#include "lamina/ops/activation/activation.h"
#include "lamina/ops/activation/gated_activation.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Formats of a quantized weight: blocks of 32 weights along `in` share one f16 scale, ŵ = scale · q.
///   q8  q in [−127, 127], scale = largest magnitude / 127                               8.5 bits per weight
///   q4  q in [−8, 7], of a few scales the one with the smallest squared error           4.5 bits per weight
enum class QuantizedFormat : uint8_t { q8, q4 };
std::string_view name_of(QuantizedFormat format);  ///< "q8" or "q4"

/// A quantized weight [out, in]. Sixteen rows form a group, stored in the order in which kernels read it: first the
/// scales [blocks, 16], then for each block the values [8, 16, 4] (k / 4, row, k % 4), as unsigned numbers. q8 stores q
/// + 128, one per byte. q4 stores q + 8 in two quarters [4, 16, 4], the second in the upper half of each byte.
struct QuantizedWeight {
  static constexpr int64_t kBlock = 32;  ///< weights per scale
  static constexpr int64_t kRows = 16;   ///< rows per group

  Tensor data;                                   ///< u8 [groups, group_bytes()]; rows and columns are padded with zeros
  int64_t out = 0;                               ///< rows of the weight
  int64_t in = 0;                                ///< columns of the weight
  QuantizedFormat format = QuantizedFormat::q8;  ///< format of the values

  bool defined() const { return data.defined(); }                ///< false: there is no weight
  int64_t blocks() const { return (in + kBlock - 1) / kBlock; }  ///< blocks per row
  int64_t groups() const { return (out + kRows - 1) / kRows; }   ///< groups of kRows rows
  /// Bytes of the scales of a group, padded to a cache line.
  int64_t scale_bytes() const { return (blocks() * kRows * 2 + 63) / 64 * 64; }
  /// Bytes of a group: its scales and values.
  int64_t group_bytes() const {
    return scale_bytes() + blocks() * kRows * (format == QuantizedFormat::q8 ? kBlock : kBlock / 2);
  }
};

/// Quantizes a weight [out, in] of any floating type. Throws an Error for weights that are not finite and for scales
/// that exceed f16. If the weight is on a CUDA device, the host quantizes it, once.
QuantizedWeight quantize(const Tensor& weight, QuantizedFormat format);
/// The weight ŵ that the quantized values stand for: f32 [out, in].
Tensor dequantize(const QuantizedWeight& weight);

/// Linear layer with a quantized weight: y = act(x̂ · ŵᵀ + bias)
///   x [..., in] f32, bf16 or f16; bias [out] or undefined; y [..., out] in the dtype of x
/// x̂ is x, quantized to 8 bits in blocks of 32: q = round(x / scale) with scale = largest magnitude / 127 in f32. Sums
/// within a block are exact integers; blocks are added in f32. Exception: on a GPU, x̂ = x for more than eight bf16 or
/// f16 rows. No gradient.
Tensor quantized_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias = {},
                        Activation activation = Activation::none);

/// The first half of a gated feed-forward network: gated_activation(quantized_linear(x, weight, bias), gate, options).
///   weight  [2·n, in], rows of gate and up in the order of gated_activation(); bias [2·n] or undefined; y [..., n]
/// On a GPU, few rows take one launch if each half of the weight is a whole number of groups. Otherwise the two
/// operators run one after the other. With one launch, and on the CPU, gate and up are not rounded in between.
Tensor quantized_gated_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias, Gate gate,
                              const GateOptions& options = {});

}  // namespace lamina::ops
