#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::cuda {

/// Copies between tensors of equal shape on this device, with any strides and dtypes; converts if the dtypes differ.
void copy(const Tensor& source, Tensor& target);
/// target += source for floating dtypes and any strides.
void accumulate(const Tensor& source, Tensor& target);
void fill(Tensor& target, double value);
/// Copies host memory to a contiguous tensor. The caller may change the host memory as soon as the call returns.
void copy_from_host(const void* source, const Tensor& target);
/// Writes a few values to pinned host memory by a kernel; the next kernel would have to wait for a memcpy. Alternates
/// between two targets: the first if the device counter `turn` is even, else the second. Increments `turn`.
void write_to_host(const Tensor& source, int64_t* targets, const Tensor& turn);
/// Waits for the queued work, then copies to host memory.
void copy_to_host(const Tensor& source, void* target);

}  // namespace lamina::cuda
