#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::io::hf {

/// to[i, j] = from[j, i] for two CPU matrices of the same type whose rows are contiguous. Copies tile by tile at memory
/// bandwidth: source and destination are accessed in whole cache lines.
void copy_transposed(const Tensor& from, Tensor& to);

}  // namespace lamina::io::hf
