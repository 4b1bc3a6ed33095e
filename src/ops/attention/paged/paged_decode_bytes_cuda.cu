// The tensor-core kernel for 8-bit caches, in a file of its own so that the cache types compile in parallel.
#include "lamina/ops/attention/paged/paged_decode_launch.cuh"

namespace lamina::ops::cuda::paged {

LAMINA_PAGED_DECODE(uint8_t, __nv_bfloat16, DType::bf16)

}  // namespace lamina::ops::cuda::paged
