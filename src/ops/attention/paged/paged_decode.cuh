#pragma once

// Entry points of the tensor-core kernels for decoding over pages. Each cache type has its own translation unit.

#include "lamina/ops/attention/paged/paged_decode_device.cuh"

namespace lamina::ops::cuda::paged {

/// Launches the tensor-core kernel. Returns false if it does not support the widths or the device. C is the element
/// type of the cache.
template <class C>
bool decode_on_tensor_cores(const PagedDecode& args, Params p);
template <>
bool decode_on_tensor_cores<__nv_bfloat16>(const PagedDecode& args, Params p);
template <>
bool decode_on_tensor_cores<__half>(const PagedDecode& args, Params p);
template <>
bool decode_on_tensor_cores<uint8_t>(const PagedDecode& args, Params p);

}  // namespace lamina::ops::cuda::paged
