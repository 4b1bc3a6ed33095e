#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/parallel/context_share.h"

namespace lamina::ops {

/// attention() of sequences whose positions ranks share (context parallel). Every rank of `share` calls it with its own
/// tokens, and gets their outputs. Null `share`: attention().
///   q  [batch, share.tokens(), n_heads, d_qk]      k, v  likewise with n_kv_heads, d_qk and d_v
///   returns [batch, share.tokens(), n_heads, d_v]
/// Documents are those of `share`; extras.document_starts is ignored.
///
/// Ring attention (arXiv:2310.01889): blocks of keys and values travel around the ranks. Each rank attends to the block
/// it holds and merges the results by their log-sum-exp:
///   lse ← log(e^lse + e^lse_b),  y ← y · e^(lse_old − lse) + y_b · e^(lse_b − lse)
/// In backward the blocks travel again, with their gradients. A rank stores two blocks of keys and values at a time.
///
/// Scores that depend on the distance (sliding window and other patterns, ALiBi, T5 bias) are computed otherwise: every
/// rank gathers all keys and values of the layer, and their gradients are summed by a reduce-scatter. These need causal
/// attention. Dropout is not supported.
Tensor context_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const std::shared_ptr<const ContextShare>& share, const AttentionOptions& options = {},
                         const AttentionExtras& extras = {});

}  // namespace lamina::ops
