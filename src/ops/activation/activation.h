#pragma once

#include <cstdint>

namespace lamina::ops {

enum class Activation : uint8_t { none, relu, gelu, gelu_tanh, silu, elu, selu, relu2, sigmoid, tanh };

}  // namespace lamina::ops
