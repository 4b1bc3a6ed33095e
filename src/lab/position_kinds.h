#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::lab {

/// A way to tell positions that a model is trained with.
struct PositionKind {
  std::string name;
  std::string label;
  std::vector<std::string> set;  ///< changes of an architecture, path=value
};
/// Those that `lamina stretch` trains. The window's is a quarter of the length, with rotations.
std::vector<PositionKind> position_kinds(int64_t trained_length);
/// The one whose models the scalings are for.
inline constexpr const char* kScaledKind = "rope";

/// A way to read further than trained with rotations that are changed after training.
struct ScalingKind {
  const char* name;
  const char* label;
  /// For sequences `factor` times as long as those of training.
  arch::RopeScaling (*at)(double factor, int64_t trained_length);
};
const std::vector<ScalingKind>& rope_scalings();

bool has_rope(const arch::ArchSpec& resolved);
/// The architecture with this scaling in every rotation, resolved anew.
arch::ArchSpec with_scaling(arch::ArchSpec resolved, const arch::RopeScaling& scaling);

}  // namespace lamina::lab
