#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::io::hf {

/// to[i, j] = from[j, i] for two CPU matrices of one type with dense rows. Works in tiles, so that both sides are
/// accessed by whole cache lines, at memory bandwidth.
void copy_transposed(const Tensor& from, Tensor& to);

}  // namespace lamina::io::hf
