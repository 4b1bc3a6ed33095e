#pragma once

#include <string>
#include <vector>

#include "lamina/ops/linear/quantized_linear.h"

namespace lamina::nn {

/// Storage format of a projection's weight during generation.
enum class WeightFormat : uint8_t { as_stored, f32, bf16, q8, q4 };

inline bool is_quantized(WeightFormat format) { return format == WeightFormat::q8 || format == WeightFormat::q4; }

/// Maps each weight's name to a format.
struct WeightFormats {
  struct Rule {
    std::string pattern;  ///< matches weights whose name contains it: "head.", "layers.0.mixer"
    WeightFormat format;
  };
  WeightFormat all = WeightFormat::as_stored;
  std::vector<Rule> rules;  ///< the last match wins

  WeightFormat of(const std::string& name) const;
};

/// Parses a format, optionally followed by rules: "q4,head.=q8,layers.0.=f32". In a q4 model the head is q8 unless a
/// rule says otherwise, because its rounding errors affect the probabilities directly.
WeightFormats parse_weight_formats(const std::string& text);

/// Converts a weight [out, in] in place or quantizes it into `quantized`. A quantized `weight` becomes a meta tensor.
void store_weight(Tensor& weight, ops::QuantizedWeight& quantized, WeightFormat format);

/// Converts a norm scale or bias on a GPU to f32. The kernels expect f32, and otherwise every call would convert it.
void store_vector(Tensor& vector);

}  // namespace lamina::nn
