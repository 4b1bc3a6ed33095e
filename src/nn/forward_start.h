#pragma once

#include "lamina/nn/forward_context.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

/// Options of a forward pass over whole sequences.
struct RunOptions {
  /// Boundaries of packed documents that do not attend to each other: [documents + 1] i64 or i32, ascending from 0 to
  /// seq.
  Tensor document_starts;
  /// Number of tokens of each row, at least 1; the rest of a row is padding. Padding costs no computation: the rows are
  /// concatenated without it. Its hidden states and logits are 0, and losses ignore it. Empty: no padding.
  std::vector<int64_t> lengths;
  /// [batch, seq] i64 or i32: the segment of each token, for models with segments. Undefined: segment 0.
  Tensor segments;
  /// Input of a model with an encoder: [batch, source_seq] i64 or i32, one row for each row of ids.
  Tensor source;
  /// Like `lengths`, for `source`.
  std::vector<int64_t> source_lengths;
  /// For a model with retrieval: the neighbours of each complete chunk, [batch, seq / chunk, neighbours, length] i64 or
  /// i32. Undefined: layers skip chunked cross-attention. Not with document_starts or padding.
  Tensor neighbours;
  /// Context parallelism: the ids are this rank's share of longer sequences, which may hold packed documents. Not with
  /// document_starts, lengths, segments, source, neighbours or an observer. Null: the ids are whole sequences.
  std::shared_ptr<const ops::ContextShare> context = nullptr;
  /// Enables dropout; its random numbers depend on seed, step and layer.
  bool training = false;
  DropoutRates dropout;   ///< see training
  uint64_t seed = 0;      ///< see training
  uint64_t step = 0;      ///< number of the optimizer step; see training
  int64_t first_row = 0;  ///< index of the first row, if this is a part of a larger batch; see training
  /// Tape for activation checkpointing: each layer's activations are recomputed in its backward pass instead of stored.
  Tape* checkpoint = nullptr;
  /// Tape for selective recomputation: the outputs of norms before sublayers, and of activations in feed-forward
  /// layers, are recomputed in backward instead of stored. Has no effect together with `checkpoint`.
  Tape* recompute = nullptr;
  /// In an interleaved pipeline: which of this stage's groups of layers to run (arch::PipelineStage::chunks).
  int chunk = 0;
  /// Receives the layers' attention weights and residual streams. Not with `checkpoint`.
  ForwardObserver* observer = nullptr;
};

/// Puts padding back: x [1, tokens, ...] with rows that begin at `starts` → [rows, seq, ...], with 0 for padding.
/// Returns x itself if `starts` is empty.
Tensor with_padding(const Tensor& x, const std::vector<int64_t>& starts, int64_t seq);

/// Token ids and context at the start of a forward pass over whole sequences.
struct ForwardStart {
  Tensor ids;           ///< [batch, seq], or [1, tokens] if padding was removed
  ForwardContext pass;  ///< context of `ids`
  int64_t batch = 0;    ///< batch size of the caller's ids
  int64_t seq = 0;      ///< length of the caller's ids

  /// Puts padding back: x [1, tokens, ...] → [batch, seq, ...]. Returns x itself if none was removed.
  Tensor padded(const Tensor& x) const { return with_padding(x, pass.row_starts, seq); }
  /// Values [batch, seq] with the padding of the ids removed; not differentiable.
  Tensor without_padding(const Tensor& values) const;
};

/// Throws unless ids is a tensor [batch, seq] of i64 or i32.
void check_ids(const Tensor& ids);
/// Checks the ids, fills the context and removes padding. Ignores `source`.
ForwardStart start_forward(const Tensor& ids, const RunOptions& options);

}  // namespace lamina::nn
