#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::cuda {

/// Copies with conversion between tensors of equal shape, of any strides and dtypes, both on this device.
void copy(const Tensor& source, Tensor& target);
/// target += source for floating dtypes and any strides.
void accumulate(const Tensor& source, Tensor& target);
void fill(Tensor& target, double value);
/// Copies the bytes of a contiguous tensor. The caller may change the host memory as soon as the call returns.
void copy_from_host(const void* source, const Tensor& target);
/// Writes a few values to pinned host memory with a kernel, because the next kernel would have to wait for a memcpy.
/// Alternates between two targets: uses the first if the device counter `turn` is even, and increments `turn`.
void write_to_host(const Tensor& source, int64_t* targets, const Tensor& turn);
/// Waits for the queued work, then copies.
void copy_to_host(const Tensor& source, void* target);

}  // namespace lamina::cuda
