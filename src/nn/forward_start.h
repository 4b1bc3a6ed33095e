#pragma once

#include "lamina/nn/forward_context.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

/// Options of a forward pass over whole sequences.
struct RunOptions {
  /// Packed documents that do not attend to each other: [documents + 1] i64 or i32, ascending from 0 to seq.
  Tensor document_starts;
  /// Number of tokens of each row, at least 1; the rest of a row is padding. Padding costs nothing: the rows are
  /// concatenated without it. Its hidden states and logits are 0, and it does not count in a loss. Empty: no padding.
  std::vector<int64_t> lengths;
  /// [batch, seq] i64 or i32: the segment of each token, for models with segments. Undefined: segment 0.
  Tensor segments;
  /// Source [batch, source_seq] i64 or i32 of a model with an encoder, which must have one row for each row of ids.
  Tensor source;
  /// As `lengths`, for the source.
  std::vector<int64_t> source_lengths;
  /// Neighbours [batch, seq / chunk, neighbours, length] i64 or i32 of a model with retrieval: of each complete chunk.
  /// Undefined: layers leave out chunked cross-attention. Not with document_starts or padding.
  Tensor neighbours;
  /// The ids are this rank's share of longer sequences, which may hold packed documents (context parallel). Not with
  /// document_starts, lengths, segments, source, neighbours or an observer. Null: they are whole sequences.
  std::shared_ptr<const ops::ContextShare> context = nullptr;
  /// Enables dropout; its random numbers depend on seed, step and layer.
  bool training = false;
  DropoutRates dropout;   ///< see training
  uint64_t seed = 0;      ///< see training
  uint64_t step = 0;      ///< number of the update; see training
  int64_t first_row = 0;  ///< number of the first row in a larger batch that this one is a part of; see training
  /// Tape for activation checkpointing: each layer's activations are recomputed in its backward pass instead of stored.
  Tape* checkpoint = nullptr;
  /// Tape for selective recomputation: outputs of norms before sublayers, and of activations in feed-forward layers,
  /// are computed again in backward instead of stored. Has no effect together with `checkpoint`.
  Tape* recompute = nullptr;
  /// Which of the stage's groups of layers runs, in an interleaved pipeline (arch::PipelineStage::chunks).
  int chunk = 0;
  /// Receives attention weights and residual streams of the layers; not with `checkpoint`.
  ForwardObserver* observer = nullptr;
};

/// Restores the padding of rows that begin at `starts` in x [1, tokens, ...]: [rows, seq, ...], padding is 0. Returns x
/// itself if `starts` is empty.
Tensor with_padding(const Tensor& x, const std::vector<int64_t>& starts, int64_t seq);

/// Tokens and context of a forward pass over whole sequences.
struct ForwardStart {
  Tensor ids;           ///< [batch, seq], or [1, tokens] if padding was removed
  ForwardContext pass;  ///< of `ids`
  int64_t batch = 0;    ///< of the given ids
  int64_t seq = 0;      ///< of the given ids

  /// x [1, tokens, ...] with padding restored, [batch, seq, ...]; x itself if nothing was removed.
  Tensor padded(const Tensor& x) const { return with_padding(x, pass.row_starts, seq); }
  /// Values [batch, seq] with the padding of the ids removed; not differentiable.
  Tensor without_padding(const Tensor& values) const;
};

/// Throws unless ids is a tensor [batch, seq] of i64 or i32.
void check_ids(const Tensor& ids);
/// Checks the tokens, sets the context and removes padding. Ignores `source`.
ForwardStart start_forward(const Tensor& ids, const RunOptions& options);

}  // namespace lamina::nn
