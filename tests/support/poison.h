#pragma once

#include "lamina/tensor/device.h"

namespace lamina::testing {

/// Leaves what is not a number in the registers and the shared memory of a GPU, and in memory that is free to be handed
/// out again: a kernel that reads what nobody has written shows it. Does nothing on other devices; only in builds with
/// CUDA.
void poison(const Device& device);

}  // namespace lamina::testing
