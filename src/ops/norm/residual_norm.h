#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Result of a residual addition fused with a norm.
struct ResidualNorm {
  Tensor h;  ///< x + residual, x's dtype
  Tensor y;  ///< the norm of h
};

}  // namespace lamina::ops
