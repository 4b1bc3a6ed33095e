#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/parallel/context_share.h"

namespace lamina::ops {

/// attention() of sequences that are divided over ranks by position (context parallelism). Every rank of `share` calls
/// this with the queries, keys and values of its own tokens and gets the outputs of these tokens. A null `share` means
/// attention().
///   q  [batch, share.tokens(), n_heads, d_qk]      k, v  likewise with n_kv_heads, d_qk and d_v
///   returns [batch, share.tokens(), n_heads, d_v]
/// Packed documents are given by `share`; extras.document_starts is ignored.
///
/// Uses ring attention (arXiv:2310.01889): blocks of keys and values travel around the ranks. Each rank attends to the
/// block that it holds and merges the results y_b by their log-sum-exp lse_b:
///   lse ← log(e^lse + e^lse_b),  y ← y · e^(lse_old − lse) + y_b · e^(lse_b − lse)
/// In backward the blocks travel again, with their gradients. A rank stores two blocks of keys and values at a time.
///
/// If scores depend on the distance of query and key (sliding window and other patterns, ALiBi, T5 bias), every rank
/// instead gathers all keys and values of the layer; a reduce-scatter sums their gradients. Causal attention only.
/// Dropout is not supported.
Tensor context_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const std::shared_ptr<const ContextShare>& share, const AttentionOptions& options = {},
                         const AttentionExtras& extras = {});

}  // namespace lamina::ops
