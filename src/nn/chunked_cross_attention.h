#pragma once

#include <memory>

#include "lamina/arch/spec.h"
#include "lamina/nn/forward_context.h"
#include "lamina/nn/layer_cache.h"
#include "lamina/nn/projection.h"

namespace lamina::nn {

class PositionTables;
class RotaryPosition;

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

  /// x [batch, seq, d_model] → the same shape. The first layer of a pass encodes pass.neighbours.ids; its x is what the
  /// neighbour encoder sees of the chunks. With a cache the tokens follow those of earlier passes; all rows have the
  /// same length.
  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) const;

  /// An empty cache.
  std::unique_ptr<LayerCache> make_cache() const;

 private:
  struct Keys {
    Tensor k;  ///< [chunks, neighbours · length, n_kv_heads, head_dim]
    Tensor v;  ///< [chunks, neighbours · length, n_kv_heads, head_dim]
  };
  class Cache;
  void encode(const Tensor& x, ForwardContext& pass, Cache* cache) const;
  Keys keys_of(const Tensor& states) const;
  /// Those of the last chunk of each of `rows` rows.
  static Keys last_of(const Keys& keys, int64_t rows);
  /// x [rows, tokens, d_model], whose first token is `place` tokens after its chunk's end.
  Tensor attend(const Tensor& x, int64_t place, const Keys& keys, ForwardContext& pass) const;
  Tensor attend_new_chunks(const Tensor& x, const Keys& keys, ForwardContext& pass) const;

  arch::CrossAttention spec_;
  arch::Retrieval retrieval_;
  Linear q_;
  JoinedLinear kv_;
  Linear o_;
  RotaryPosition* rotary_;  ///< null: no positions
};

}  // namespace lamina::nn
