#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::lab {

/// A position encoding that models are trained with.
struct PositionKind {
  std::string name;
  std::string label;
  std::vector<std::string> set;  ///< architecture changes, path=value
};
/// Kinds that `lamina stretch` trains. The sliding window is a quarter of the length and uses RoPE.
std::vector<PositionKind> position_kinds(int64_t trained_length);
/// Kind whose models the RoPE scalings apply to.
inline constexpr const char* kScaledKind = "rope";

/// RoPE scaling that extends the context after training.
struct ScalingKind {
  const char* name;
  const char* label;
  /// Scaling for sequences `factor` times the training length.
  arch::RopeScaling (*at)(double factor, int64_t trained_length);
};
const std::vector<ScalingKind>& rope_scalings();

bool has_rope(const arch::ArchSpec& resolved);
/// Applies this scaling to every RoPE and resolves again.
arch::ArchSpec with_scaling(arch::ArchSpec resolved, const arch::RopeScaling& scaling);

}  // namespace lamina::lab
