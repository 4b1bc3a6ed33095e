#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::lab {

/// A position encoding with which models are trained.
struct PositionKind {
  std::string name;
  std::string label;
  std::vector<std::string> set;  ///< architecture changes, path=value
};
/// The kinds that `lamina stretch` trains. The sliding window is a quarter of the length, and uses RoPE.
std::vector<PositionKind> position_kinds(int64_t trained_length);
/// The kind whose models RoPE scalings are applied to.
inline constexpr const char* kScaledKind = "rope";

/// RoPE scaling that extends the context after training.
struct ScalingKind {
  const char* name;
  const char* label;
  /// The scaling for sequences of `factor` times the training length.
  arch::RopeScaling (*at)(double factor, int64_t trained_length);
};
const std::vector<ScalingKind>& rope_scalings();

bool has_rope(const arch::ArchSpec& resolved);
/// Applies this scaling to every RoPE, and resolves the architecture again.
arch::ArchSpec with_scaling(arch::ArchSpec resolved, const arch::RopeScaling& scaling);

}  // namespace lamina::lab
