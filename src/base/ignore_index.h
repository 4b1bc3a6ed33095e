#pragma once

#include <cstdint>

namespace lamina {

/// Targets with this value are ignored in losses. Same default as PyTorch.
inline constexpr int64_t kIgnoreIndex = -100;

}  // namespace lamina
