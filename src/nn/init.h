#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Overwrites `tensor` with what PyTorch's nn.init.uniform_(tensor, low, high) gives after torch.manual_seed(seed), to
/// the bit. A meta tensor is left alone.
void init_uniform(const Tensor& tensor, double low, double high, uint64_t seed);

/// The same for nn.init.normal_(tensor, mean, deviation), to a few ulp.
void init_normal(const Tensor& tensor, double mean, double deviation, uint64_t seed);

}  // namespace lamina::nn
