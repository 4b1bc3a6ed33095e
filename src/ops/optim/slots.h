#pragma once

// A slot is what an optimizer gets for one parameter: the tensor, its gradient and its state. Optimizers update slots
// in place and have no gradient, so they are not in op_list.def and have no operator test case; tests/ops/*_test.cpp
// compare them with plain loops in f64. All of them process many tensors in one pass over equal chunks, so that a
// thousand small norms cost no more than one matrix of the same size.

#include <algorithm>
#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// One parameter with its gradient. Arithmetic is in f32 (f64 for an f64 parameter).
struct ParamSlot {
  Tensor param;   ///< any floating type, contiguous; updated
  Tensor grad;    ///< param's shape; f32, bf16 or f16, or f64 if param is f64
  Tensor master;  ///< f32 copy of a bf16 or f16 param, optional. The optimizer updates it and rounds it to param
  double lr = 1e-3;
  double weight_decay = 0.0;
};

}  // namespace lamina::ops
