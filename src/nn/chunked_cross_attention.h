#pragma once

#include <memory>

#include "lamina/nn/cross_projections.h"
#include "lamina/nn/layer_cache.h"

namespace lamina::nn {

/// Attention of a decoder layer to the neighbours of chunks (arXiv:2112.04426). With chunks of m tokens, the token at
/// position t (from 0) attends to all tokens of all neighbours of chunk (t + 1) / m, where chunk 1 is the first. The
/// last token of a chunk is the first to see the chunk's neighbours, and the next chunk's last token no longer does.
/// For the first m − 1 tokens the output is 0.
///
/// With RoPE, a neighbour's token i has position i, and the token at t has position m − 1 + (t + 1) % m: neighbours are
/// aligned with the chunk that they are neighbours of.
///
/// Its parameters have the names that arch::block_weights lists under "cross.".
class ChunkedCrossAttention final : public Module {
 public:
  ChunkedCrossAttention(const arch::ArchSpec& spec, const arch::CrossAttention& cross, const ParameterFactory& make,
                        PositionTables& positions);

  /// x [batch, seq, d_model] → the same shape. The first layer of a pass encodes pass.neighbours.ids; the
  /// neighbour encoder attends to its x. With a cache the tokens follow those of earlier passes; all rows have the
  /// same length.
  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) const;

  /// An empty cache.
  std::unique_ptr<LayerCache> make_cache() const;

 private:
  class Cache;
  void encode(const Tensor& x, ForwardContext& pass, Cache* cache) const;
  /// Keys and values of the last chunk of each of `rows` rows.
  static CrossKeys last_of(const CrossKeys& keys, int64_t rows);
  /// x [rows, tokens, d_model], whose first token is `place` tokens after its chunk's end.
  Tensor attend(const Tensor& x, int64_t place, const CrossKeys& keys, ForwardContext& pass) const;
  Tensor attend_new_chunks(const Tensor& x, const CrossKeys& keys, ForwardContext& pass) const;

  arch::Retrieval retrieval_;
  CrossProjections projections_;
};

}  // namespace lamina::nn
