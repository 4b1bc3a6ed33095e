#pragma once

#include "lamina/arch/fields.h"

namespace lamina::arch {

struct RmsNorm {
  static constexpr std::string_view kKind = "rms";
  static constexpr std::string_view kDoc = "x / rms(x) · (γ + offset) (arXiv:1910.07467)";
  double eps = 1e-5;
  double offset = 0.0;
  std::optional<int64_t> group_size;
  static void visit_fields(auto& self, auto&& field) {
    field("eps", self.eps, "added to the mean square");
    field("offset", self.offset, "added to the stored scale; 1 for models that store γ - 1", kAnyNumber);
    field("group_size", self.group_size, "elements that share one RMS; default all");
  }
  bool operator==(const RmsNorm&) const = default;
};

struct LayerNorm {
  static constexpr std::string_view kKind = "layer";
  static constexpr std::string_view kDoc = "(x - μ) / σ · (γ + offset) + β (arXiv:1607.06450)";
  double eps = 1e-5;
  bool bias = true;
  double offset = 0.0;
  static void visit_fields(auto& self, auto&& field) {
    field("eps", self.eps, "added to the variance");
    field("bias", self.bias, "whether there is a β");
    field("offset", self.offset, "added to the stored scale; 1 for models that store γ - 1", kAnyNumber);
  }
  bool operator==(const LayerNorm&) const = default;
};

struct RmsNormNoParams {
  static constexpr std::string_view kKind = "rms_no_params";
  static constexpr std::string_view kDoc = "x / rms(x)";
  double eps = 1e-5;
  static void visit_fields(auto& self, auto&& field) { field("eps", self.eps, "added to the mean square"); }
  bool operator==(const RmsNormNoParams&) const = default;
};

struct LayerNormNoParams {
  static constexpr std::string_view kKind = "layer_no_params";
  static constexpr std::string_view kDoc = "(x - μ) / σ";
  double eps = 1e-5;
  static void visit_fields(auto& self, auto&& field) { field("eps", self.eps, "added to the variance"); }
  bool operator==(const LayerNormNoParams&) const = default;
};

/// Normalization of the residual stream, of an embedding, or of queries and keys.
using Norm = std::variant<RmsNorm, LayerNorm, RmsNormNoParams, LayerNormNoParams>;

/// Norm placement for a sublayer f:
///   pre                  x + f(norm(x))
///   post                 norm(x + f(x))
///   sandwich             x + norm'(f(norm(x)))
///   branch_post          x + norm(f(x))
///   residual_after_norm  n + f(n), n = norm(x)
enum class Placement : uint8_t { pre, post, sandwich, branch_post, residual_after_norm };
constexpr auto names_of(Placement) {
  return std::array<std::string_view, 5>{"pre", "post", "sandwich", "branch_post", "residual_after_norm"};
}

}  // namespace lamina::arch
