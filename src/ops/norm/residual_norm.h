#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// What a norm fused with the residual addition gives.
struct ResidualNorm {
  Tensor h;  ///< x + residual, x's type
  Tensor y;  ///< the norm of h
};

}  // namespace lamina::ops
