#pragma once

#include "lamina/arch/attention.h"
#include "lamina/nn/forward_context.h"
#include "lamina/ops/attention/attention.h"

namespace lamina::nn {

/// Random key blocks of one document as the published code draws them with NumPy's generator: [blocks, random_blocks]
/// for each head. Rows of the first and last block, which attend to everything, are zero. `length` is the document's
/// length, `context` the model's maximum.
std::vector<std::vector<int32_t>> numpy_random_blocks(const arch::BigBirdPattern& pattern, int64_t heads,
                                                      int64_t length, int64_t context, uint32_t seed);

/// BigBird attention like the published code (draw: numpy). It differs between training and inference.
///   training   every head has its own random blocks, so each head is a separate attention call
///   inference  every random block is replaced by the first block: for queries outside of the first and last block, its
///              keys count 1 + random_blocks times. That adds log(1 + random_blocks) to their scores, by one additional
///              element of queries and keys:  q' = [q, 1],  k' = [k, log(1 + random_blocks) / scale]
/// Documents of at most 5 + 2 · random_blocks blocks use full attention.
class PublishedBigBird {
 public:
  PublishedBigBird(const arch::Attention& attention, int64_t context);

  /// q, k, v [batch, seq, heads, width] of the tokens of `pass` → [batch, seq, n_heads, v_head_dim]. `options` are the
  /// options of the layer.
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
