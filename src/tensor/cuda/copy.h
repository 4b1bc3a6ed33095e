#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::cuda {

/// Element-wise conversion between any strides and types of equal shape, both on this device.
void copy(const Tensor& source, Tensor& target);
/// target += source, element by element, for floating types of any strides.
void accumulate(const Tensor& source, Tensor& target);
void fill(Tensor& target, double value);
/// The bytes of a dense tensor. The host's memory may change as soon as the call returns.
void copy_from_host(const void* source, const Tensor& target);
/// Some numbers to pinned memory of the host, by a kernel: the copy engine would have to be waited for by what comes
/// next. `targets` are two, and taken in turns: the first where `turn` on the device is even, and it is counted on.
void write_to_host(const Tensor& source, int64_t* targets, const Tensor& turn);
/// Waits for what was queued before.
void copy_to_host(const Tensor& source, void* target);

}  // namespace lamina::cuda
