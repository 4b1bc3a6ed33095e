#pragma once

#include "lamina/base/philox.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// y = x / (1 − p) for kept elements and 0 for dropped ones. Each element is dropped with probability p. Element i of
/// the contiguous tensor is kept if philox_word(key, first + i) >= dropout_threshold(p). The mask depends only on key
/// and position, so backward recomputes it. If x is a part of a larger tensor, `first` is the index of its first
/// element there: the parts then get the same mask as the whole. p = 0 returns x itself, p = 1 zeros. Srivastava et al.
/// 2014.
///   x, y  any shape, any floating type; computed in f32 (f64 for f64)
/// Backward: dx = dy / (1 − p) where kept, 0 elsewhere.
Tensor dropout(const Tensor& x, double p, const RandomKey& key, int64_t first = 0);

}  // namespace lamina::ops
