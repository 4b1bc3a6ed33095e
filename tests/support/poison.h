#pragma once

#include "lamina/tensor/device.h"

namespace lamina::testing {

/// Fills a GPU's registers, shared memory and free memory with NaNs, so that a kernel that reads uninitialized data
/// gives NaN. Does nothing on other devices; only in CUDA builds.
void poison(const Device& device);

}  // namespace lamina::testing
