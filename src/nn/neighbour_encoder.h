#pragma once

#include "lamina/nn/encoder_stack.h"

namespace lamina::nn {

/// The neighbour encoder of a model with retrieval (arXiv:2112.04426): embedding, layers without a causal mask, and
/// final norm. Layers with cross-attention see the decoder's states of the chunk. Its parameters have the names of
/// arch::neighbour_outer_weights, and of arch::block_weights under "layers.<i>.".
class NeighbourEncoder final : public Module {
 public:
  /// `table` is the decoder's embedding, whose token table may be shared; it must outlive the encoder.
  NeighbourEncoder(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& table);

  const arch::Retrieval& retrieval() const { return retrieval_; }
  /// Whether some layer attends to the chunk.
  bool reads_chunks() const { return reads_chunks_; }
  /// Throws unless ids are [batch, chunks, neighbours, length] of i64 or i32.
  void check_ids(const Tensor& ids, int64_t batch, int64_t chunks) const;

  /// ids [batch, chunks, neighbours, length], states [batch · chunks, chunk, d_model] of the decoder (not used unless
  /// reads_chunks()) → [batch · chunks, neighbours · length, width]. Takes settings and random streams from `pass` and
  /// appends losses of its layers to it.
  Tensor forward(const Tensor& ids, const Tensor& states, ForwardContext& pass);

 private:
  arch::Retrieval retrieval_;
  bool reads_chunks_;
  EncoderStack stack_;
};

}  // namespace lamina::nn
