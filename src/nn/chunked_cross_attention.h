#pragma once

#include <memory>

#include "lamina/nn/cross_projections.h"
#include "lamina/nn/layer_cache.h"

namespace lamina::nn {

/// Cross-attention of a decoder layer to retrieved neighbours of its chunks (RETRO, arXiv:2112.04426). Chunks have m
/// tokens and are numbered from 1. The token at position t (from 0) attends to all tokens of all neighbours of chunk (t
/// + 1) / m, rounded down. So a chunk's last token is the first that sees the chunk's neighbours, and the first m − 1
/// tokens of the text see none: their output is 0.
///
/// With RoPE, token i of a neighbour has position i, and the token at t has position m − 1 + (t + 1) % m. This aligns
/// each neighbour with the chunk it was retrieved for.
///
/// Its parameters have the names that arch::block_weights lists under "cross.".
class ChunkedCrossAttention final : public Module {
 public:
  ChunkedCrossAttention(const arch::ArchSpec& spec, const arch::CrossAttention& cross, const ParameterFactory& make,
                        PositionTables& positions);

  /// x [batch, seq, d_model] → the same shape. The first layer that runs encodes pass.neighbours.ids; the neighbour
  /// encoder may attend to that layer's x. With a cache, the tokens follow those of earlier calls, and all rows have
  /// the same length.
  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) const;

  /// An empty cache.
  std::unique_ptr<LayerCache> make_cache() const;

 private:
  class Cache;
  void encode(const Tensor& x, ForwardContext& pass, Cache* cache) const;
  /// Keys and values of the last chunk of each of `rows` rows.
  static CrossKeys last_of(const CrossKeys& keys, int64_t rows);
  /// x [rows, tokens, d_model]. Its first token is `place` tokens after the end of its chunk.
  Tensor attend(const Tensor& x, int64_t place, const CrossKeys& keys, ForwardContext& pass) const;
  Tensor attend_new_chunks(const Tensor& x, const CrossKeys& keys, ForwardContext& pass) const;

  arch::Retrieval retrieval_;
  CrossProjections projections_;
};

}  // namespace lamina::nn
