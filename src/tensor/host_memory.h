#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina {

/// Whether the CPU can access the tensor's elements. False on a GPU and on meta devices.
inline bool is_in_host_memory(const Tensor& tensor) { return tensor.device().kind() == DeviceKind::cpu; }

}  // namespace lamina
