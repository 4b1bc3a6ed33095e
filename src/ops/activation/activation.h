#pragma once

#include "lamina/base/function_kinds.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

using lamina::Activation;

/// y = f(x), element-wise; `none` returns x itself.
///   x, y  any shape, any floating type
/// Computed in f32 (f64 for f64). Backward, from the saved x: dx = dy · f'(x).
Tensor activation(const Tensor& x, Activation function);

}  // namespace lamina::ops
