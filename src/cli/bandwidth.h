#pragma once

#include "lamina/tensor/device.h"

namespace lamina::cli {

/// Copy bandwidth in bytes/s (reads plus writes), the best of several rounds. `bytes` covers source and target
/// together.
double copy_bandwidth(const Device& device, int64_t bytes);
/// Read bandwidth in bytes/s of all threads over a buffer of `bytes`, the best of several rounds. On a GPU this is
/// copy_bandwidth(), because reads and writes share the memory bandwidth.
double read_bandwidth(const Device& device, int64_t bytes);

}  // namespace lamina::cli
