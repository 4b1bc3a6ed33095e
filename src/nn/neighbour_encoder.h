#pragma once

#include "lamina/nn/encoder_stack.h"

namespace lamina::nn {

/// The neighbour encoder of a model with retrieval (RETRO, arXiv:2112.04426): embedding, layers without a causal mask,
/// and final norm. Its layers with cross-attention attend to the decoder's states of the chunk. Parameter names are
/// those of arch::neighbour_outer_weights, and of arch::block_weights under "layers.<i>.".
class NeighbourEncoder final : public Module {
 public:
  /// `table` is the decoder's embedding. The encoder may share its token table, so it must outlive the encoder.
  NeighbourEncoder(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& table);

  const arch::Retrieval& retrieval() const { return retrieval_; }
  /// Whether some layer attends to the decoder's states of the chunk.
  bool reads_chunks() const { return reads_chunks_; }
  /// Throws an Error unless ids are [batch, chunks, neighbours, length] of type i64 or i32.
  void check_ids(const Tensor& ids, int64_t batch, int64_t chunks) const;

  /// ids [batch, chunks, neighbours, length] and decoder states [batch · chunks, chunk, d_model] (unused unless
  /// reads_chunks()) → [batch · chunks, neighbours · length, width]. Takes settings and random streams from `pass`, and
  /// appends losses of its layers to it.
  Tensor forward(const Tensor& ids, const Tensor& states, ForwardContext& pass);

 private:
  arch::Retrieval retrieval_;
  bool reads_chunks_;
  EncoderStack stack_;
};

}  // namespace lamina::nn
