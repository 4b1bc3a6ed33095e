#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Fills `tensor` bit-identically to PyTorch's nn.init.uniform_(tensor, low, high) after torch.manual_seed(seed). Does
/// nothing to a meta tensor.
void init_uniform(const Tensor& tensor, double low, double high, uint64_t seed);

/// Fills `tensor` like PyTorch's nn.init.normal_(tensor, mean, deviation), within a few ulp.
void init_normal(const Tensor& tensor, double mean, double deviation, uint64_t seed);

}  // namespace lamina::nn
