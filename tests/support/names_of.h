#pragma once

#include <string>
#include <vector>

#include "lamina/nn/module.h"

namespace lamina::testing {

inline std::vector<std::string> names_of(const nn::StateDict& tensors) {
  std::vector<std::string> names;
  for (const auto& entry : tensors) names.push_back(entry.name);
  return names;
}

}  // namespace lamina::testing
