#pragma once

#include <functional>

#include "lamina/tensor/tensor.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

/// Selective recomputation (arXiv:2205.05198): frees the memory of `value`. When backward needs it, `compute` is called
/// to compute it again. Call this after the last operator that reads `value`; the tape records of these operators then
/// get the recomputed values. Does nothing if `tape` is null or does not record, or if no record keeps `value`.
void recompute_in_backward(Tape* tape, const Tensor& value, std::function<Tensor()> compute);

}  // namespace lamina::nn
