#pragma once

#include <cuda_runtime_api.h>

#include "lamina/base/dtype.h"

namespace lamina::comm {

/// ordered_sum() (ordered_sum.h) on a GPU: adds `ranks` parts of `count` elements into the first one. The parts are
/// contiguous in memory, from `parts` on. f32, f64, bf16 or i64; bit-identical to the CPU.
void ordered_sum_cuda(void* parts, int ranks, int64_t count, DType dtype, cudaStream_t stream);

}  // namespace lamina::comm
