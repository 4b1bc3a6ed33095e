#pragma once

// Entry points of the decoding kernels over pages, one translation unit per cache type.

#include "lamina/ops/attention/paged/paged_decode_device.cuh"

namespace lamina::ops::cuda::paged {

/// Launches the tensor-core kernel; false if it does not support the widths or the device. C is the cache type, as
/// stored.
template <class C>
bool decode_on_tensor_cores(const PagedDecode& args, Params p);
template <>
bool decode_on_tensor_cores<__nv_bfloat16>(const PagedDecode& args, Params p);
template <>
bool decode_on_tensor_cores<__half>(const PagedDecode& args, Params p);
template <>
bool decode_on_tensor_cores<uint8_t>(const PagedDecode& args, Params p);

}  // namespace lamina::ops::cuda::paged
