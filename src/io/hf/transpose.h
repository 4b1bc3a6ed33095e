#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::io::hf {

/// to[i, j] = from[j, i] for two matrices of one type on a cpu whose rows are dense. In tiles, so that both sides are
/// read and written by the cache line: checkpoints that store matrices transposed are read at the memory's speed.
void copy_transposed(const Tensor& from, Tensor& to);

}  // namespace lamina::io::hf
