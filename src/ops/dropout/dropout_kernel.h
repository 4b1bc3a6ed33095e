#pragma once

#include "lamina/ops/dropout/dropout.h"

namespace lamina::ops {

namespace cpu {
/// y = x · scale if the element's random word is at least `threshold`, else 0.
void dropout_apply(const Tensor& x, uint32_t threshold, double scale, const RandomKey& key, const Tensor& y);
}  // namespace cpu
namespace cuda {
void dropout_apply(const Tensor& x, uint32_t threshold, double scale, const RandomKey& key, const Tensor& y);
}  // namespace cuda

}  // namespace lamina::ops
