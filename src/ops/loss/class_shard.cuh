#pragma once

#include "lamina/ops/loss/cross_entropy_kernel.h"

namespace lamina::ops::cuda {

/// Losses of a chunk of rows whose classes are divided over ranks (args.shard), from row `first` on. With `gradients`
/// also overwrites the logits [rows, this rank's classes] with their gradients. `share` as in target_share().
void shard_rows(const LinearCrossEntropy& args, const Tensor& logits, int64_t first, const Tensor& share,
                bool gradients);

}  // namespace lamina::ops::cuda
