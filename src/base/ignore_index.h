#pragma once

#include <cstdint>

namespace lamina {

/// A target with this value has no loss; PyTorch's default.
inline constexpr int64_t kIgnoreIndex = -100;

}  // namespace lamina
