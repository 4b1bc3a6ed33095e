#pragma once

#include "lamina/ops/dropout/dropout.h"

namespace lamina::ops {

namespace cpu {
/// y[i] = x[i] · scale if philox_word(key, first + i) >= threshold, else 0.
void dropout_apply(const Tensor& x, uint32_t threshold, double scale, const RandomKey& key, int64_t first,
                   const Tensor& y);
}  // namespace cpu
namespace cuda {
void dropout_apply(const Tensor& x, uint32_t threshold, double scale, const RandomKey& key, int64_t first,
                   const Tensor& y);
}  // namespace cuda

}  // namespace lamina::ops
