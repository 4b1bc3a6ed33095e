#include "lamina/ops/attention/paged/paged_decode_launch.cuh"

namespace lamina::ops::cuda::paged {

LAMINA_PAGED_DECODE(__half, __half, DType::f16)

}  // namespace lamina::ops::cuda::paged
