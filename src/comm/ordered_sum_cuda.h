#pragma once

#include <cuda_runtime_api.h>

#include "lamina/base/dtype.h"

namespace lamina::comm {

/// ordered_sum (ordered_sum.h) on a GPU: adds `ranks` parts of `count` elements, which lie one after the other from
/// `parts` on, into the first. f32, f64, bf16 or i64; bit-identical to the sum on the CPU.
void ordered_sum_cuda(void* parts, int ranks, int64_t count, DType dtype, cudaStream_t stream);

}  // namespace lamina::comm
