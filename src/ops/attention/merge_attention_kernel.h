#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Kernel arguments: merges attention over one more block of keys into that over the previous blocks, for queries
/// [first, first + n) of a sequence. ops/parallel/context_attention.h has the formulas. All tensors are contiguous.
struct MergeAttention {
  Tensor y;                        ///< [batch, seq, n_heads, d], accumulation type; updated
  Tensor log_sum_exp;              ///< [batch, n_heads, seq], accumulation type, −inf if no key was seen yet; updated
  int64_t first = 0;               ///< first query of the block
  Tensor block_y;                  ///< [batch, n, n_heads, d]
  Tensor row_max;                  ///< [batch, n_heads, n], as in AttentionForward
  Tensor row_inv_sum;              ///< [batch, n_heads, n], as in AttentionForward
  bool saved_log_sum_exp = false;  ///< row_max holds log Σ exp(score), see AttentionForward
};

namespace cpu {
void merge_attention(const MergeAttention& args);
}  // namespace cpu
namespace cuda {
void merge_attention(const MergeAttention& args);
}  // namespace cuda

}  // namespace lamina::ops
