#pragma once

// Σ x² of many tensors on a GPU, for gradient clipping and for Muon's norm.

#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda {

/// Number of elements whose squares one block sums.
constexpr int kSquaresChunk = 16384;

/// Returns [2] f64 on the device: Σ x² over all tensors, and the number of the first chunk whose sum is not finite, or
/// −1. Chunks are numbered across all tensors; each tensor starts a new chunk.
Tensor sum_of_squares(const char* op, const std::vector<Tensor>& tensors);

}  // namespace lamina::ops::cuda
