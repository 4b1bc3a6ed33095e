#pragma once

#include <functional>

#include "lamina/tensor/tensor.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

/// Selective recomputation (arXiv:2205.05198): frees the memory of `value`, which `compute` returns again when backward
/// comes to this place. Call it after the last operator that reads `value`: their tape records keep its shape, and find
/// the values when they need them. Does nothing if `tape` is null or does not record, or if no record keeps `value`.
void recompute_in_backward(Tape* tape, const Tensor& value, std::function<Tensor()> compute);

}  // namespace lamina::nn
