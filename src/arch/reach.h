#pragma once

#include <cstdint>
#include <optional>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// The longest sequence that a resolved architecture can process: the length of its table of learned positions. Empty
/// if there is no limit.
inline std::optional<int64_t> longest_sequence(const ArchSpec& spec) {
  const auto* learned = std::get_if<LearnedPosition>(&spec.position);
  return learned == nullptr ? std::nullopt : learned->length;
}

}  // namespace lamina::arch
