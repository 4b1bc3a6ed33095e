#pragma once

#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda {

/// Elements whose squares one block adds.
constexpr int kSquaresChunk = 16384;

/// [2] f64 on the device: Σ x² over all tensors, and the first chunk whose own sum is not finite, −1 for none. Chunks
/// are counted through all tensors, each beginning with a new one.
Tensor squares_on_device(const char* op, const std::vector<Tensor>& tensors);

}  // namespace lamina::ops::cuda
