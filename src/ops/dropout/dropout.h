#pragma once

#include "lamina/base/philox.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = x / (1 − p) where the element is kept, 0 where it is dropped, each dropped with probability p. Element i of the
/// dense tensor is kept when philox_word(key, i) >= dropout_threshold(p): the mask depends on key and position only and
/// is computed again in the backward pass. p = 0 gives x itself, p = 1 zeros. Srivastava et al. 2014.
///   x, y  any shape, any floating type; computed in f32 (f64 for f64)
/// Backward: dx = dy / (1 − p) where kept, 0 elsewhere.
Tensor dropout(const Tensor& x, double p, const RandomKey& key);

namespace cpu {
/// y = x · scale where the word of the element is not below `threshold`, else 0.
void dropout_apply(const Tensor& x, uint32_t threshold, double scale, const RandomKey& key, const Tensor& y);
}  // namespace cpu
namespace cuda {
void dropout_apply(const Tensor& x, uint32_t threshold, double scale, const RandomKey& key, const Tensor& y);
}  // namespace cuda

}  // namespace lamina::ops
