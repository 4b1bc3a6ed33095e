#include "lamina/ops/activation/activation.h"

#include <array>
#include <cstddef>

namespace lamina::ops {
namespace {

constexpr std::array<std::string_view, 10> kNames{"none", "relu", "gelu",  "gelu_tanh", "silu",
                                                  "elu",  "selu", "relu2", "sigmoid",   "tanh"};

}  // namespace

std::string_view name_of(Activation activation) { return kNames[static_cast<size_t>(activation)]; }

std::optional<Activation> activation_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Activation>(i);
  }
  return std::nullopt;
}

}  // namespace lamina::ops
