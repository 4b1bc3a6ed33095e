// The tensor-core kernel for f16 caches, in a file of its own so that the cache types compile in parallel.
#include "lamina/ops/attention/paged/paged_decode_launch.cuh"

namespace lamina::ops::cuda::paged {

LAMINA_PAGED_DECODE(__half, __half, DType::f16)

}  // namespace lamina::ops::cuda::paged
