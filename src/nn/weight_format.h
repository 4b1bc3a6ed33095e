#pragma once

#include <string>
#include <vector>

#include "lamina/ops/linear/quantized_linear.h"

namespace lamina::nn {

/// How a projection's weight is kept for generation.
enum class WeightFormat : uint8_t { as_stored, f32, bf16, q8, q4 };

inline bool is_rounded(WeightFormat format) { return format == WeightFormat::q8 || format == WeightFormat::q4; }

/// A format for each weight, by its name.
struct WeightFormats {
  struct Rule {
    std::string pattern;  ///< a part of the name ("head.", "layers.0.mixer"), or all of it
    WeightFormat format;
  };
  WeightFormat all = WeightFormat::as_stored;
  std::vector<Rule> rules;  ///< the last that fits decides

  WeightFormat of(const std::string& name) const;
};

/// "q4", or with rules behind: "q4,head.=q8,layers.0.=f32". The head of a q4 model is q8 unless a rule says otherwise:
/// its errors reach the probabilities undamped.
WeightFormats parse_weight_formats(const std::string& text);

/// Takes a weight [out, in] to its format: converted in place, or into `rounded`, `weight` becoming a shape on meta.
void store_weight(Tensor& weight, ops::QuantizedWeight& rounded, WeightFormat format);

/// A scale or a bias: on a GPU in f32, as its kernels take them, which else every call would make of it.
void store_vector(Tensor& vector);

}  // namespace lamina::nn
