#pragma once

#include <map>
#include <string>
#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina {

/// A tensor with the name it has in a module, an optimizer or a file.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

/// The tensors by name. If a name occurs twice, the first tensor counts.
inline std::map<std::string, Tensor> by_name(const NamedTensors& tensors) {
  std::map<std::string, Tensor> found;
  for (const auto& [name, tensor] : tensors) found.emplace(name, tensor);
  return found;
}

}  // namespace lamina
