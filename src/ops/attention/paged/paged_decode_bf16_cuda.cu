// The tensor-core kernel for bf16 caches, in a file of its own so that the cache types compile in parallel.
#include "lamina/ops/attention/paged/paged_decode_launch.cuh"

namespace lamina::ops::cuda::paged {

LAMINA_PAGED_DECODE(__nv_bfloat16, __nv_bfloat16, DType::bf16)

}  // namespace lamina::ops::cuda::paged
