#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda {

/// total[i] = Σ_part parts[part · stride + i], added in the order of the parts and in their type; the total is f32.
/// Does nothing if the total is undefined.
void add_parts(const char* op, const float* parts, int64_t count, int64_t stride, const Tensor& total);
void add_parts(const char* op, const double* parts, int64_t count, int64_t stride, const Tensor& total);

/// Fills a contiguous tensor with zeros; does nothing if it is undefined.
void clear(const char* op, const Tensor& tensor);

}  // namespace lamina::ops::cuda
