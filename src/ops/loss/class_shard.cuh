#pragma once

#include "lamina/ops/loss/cross_entropy_kernel.h"

namespace lamina::ops::cuda {

/// Cross entropy of a chunk of rows whose classes are divided over ranks (args.shard). The chunk starts at row `first`.
/// Writes the losses; with `gradients` also overwrites the logits [rows, this rank's classes] with their gradients.
/// `share` is the factor computed by target_share().
void shard_rows(const LinearCrossEntropy& args, const Tensor& logits, int64_t first, const Tensor& share,
                bool gradients);

}  // namespace lamina::ops::cuda
