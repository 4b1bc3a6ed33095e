#pragma once

#include "lamina/arch/attention.h"
#include "lamina/nn/forward_context.h"
#include "lamina/ops/attention/attention.h"

namespace lamina::nn {

/// Random key blocks of one head and document as the published code draws them with NumPy's generator: [blocks,
/// random_blocks], for each head. Rows of the first and the last block, which see everything, are zero. `length` is
/// that of the document, `context` the model's.
std::vector<std::vector<int32_t>> numpy_random_blocks(const arch::BigBirdPattern& pattern, int64_t heads,
                                                      int64_t length, int64_t context, uint32_t seed);

/// BigBird attention that follows the published code (draw numpy).
///   training   every head sees its own random blocks, so heads are separate calls
///   inference  the first block takes the place of every random block: its keys count 1 + random_blocks times for
///              queries outside of the first and last block. That is log(1 + random_blocks) on their scores, which an
///              additional element of queries and keys adds:  q' = [q, 1],  k' = [k, log(1 + random_blocks) / scale]
/// Documents of at most 5 + 2 · random_blocks blocks see everything.
class PublishedBigBird {
 public:
  PublishedBigBird(const arch::Attention& attention, int64_t context);

  /// q, k, v [batch, seq, heads, width] of the tokens of `pass` → [batch, seq, n_heads, v_head_dim]. `options` are
  /// those of the layer.
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const ops::AttentionOptions& options,
                const ForwardContext& pass) const;

 private:
  /// Attention within one document.
  Tensor attend_document(const Tensor& q, const Tensor& k, const Tensor& v, const ops::AttentionOptions& options,
                         const ForwardContext& pass) const;
  Tensor attend_heads(const Tensor& q, const Tensor& k, const Tensor& v, const ops::AttentionOptions& options,
                      uint32_t seed) const;
  Tensor attend_first_block(const Tensor& q, const Tensor& k, const Tensor& v,
                            const ops::AttentionOptions& options) const;

  arch::BigBirdPattern pattern_;
  double scale_;
  int64_t context_;
};

}  // namespace lamina::nn
