#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lamina/base/philox.h"
#include "lamina/ops/parallel/context_share.h"
#include "lamina/ops/parallel/expert_exchange.h"
#include "lamina/tensor/tensor.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

class ExpertParallel;
class ForwardObserver;
class NeighbourEncoder;
class TensorParallel;
struct LayerMemory;
struct RowBatch;

/// Dropout probabilities, each in [0, 1); used in training only.
struct DropoutRates {
  double embedding = 0.0;  ///< the sum of token and position embedding
  double attention = 0.0;  ///< attention weights
  double residual = 0.0;   ///< output of every sublayer, before it is added to the residual stream
};

/// An encoder's output, for cross-attention.
struct EncodedSource {
  Tensor states;  ///< [batch, seq, d_model], or [1, tokens, d_model] without padding; undefined: no source
  std::vector<int64_t> row_starts;  ///< see ForwardContext::row_starts
  int64_t seq = 0;                  ///< length of the rows including padding
};

/// Retrieved neighbours of the chunks in a forward pass, for chunked cross-attention.
struct ChunkNeighbours {
  /// [batch, chunks, neighbours, length]: token ids, for the chunks that end in this pass. Undefined: no neighbours.
  Tensor ids;
  NeighbourEncoder* encoder = nullptr;  ///< null: layers skip chunked cross-attention
  /// [batch · chunks, neighbours · length, width]: the encoder's output, set by the first layer that needs it.
  Tensor states;
  bool encoded = false;  ///< whether `states` has been set
};

/// State of one forward pass: its settings, and the losses that layers report. The model creates one per call; layers
/// receive it as `pass`.
struct ForwardContext {
  int64_t batch = 0;
  int64_t seq = 0;
  /// Number of cached tokens before this call, if all rows have the same number. It is the position of the first new
  /// token.
  int64_t offset = 0;
  /// Offset of each row, if they differ. Empty: `offset` holds for all rows. Only with a cache.
  std::vector<int64_t> offsets;
  /// Number of real tokens in each row; the rest is padding. Outputs of padding are undefined, and it must not enter a
  /// recurrent state. Empty: all seq tokens are real. Only with a cache.
  std::vector<int64_t> counts;
  /// [seq] or [batch, seq] i64: positions of the tokens, if they are not offset + s (ragged rows, packed documents).
  Tensor positions;
  /// Set in Model::row_logits: the `seq` tokens of the only batch row belong to several sequences. Only attention and
  /// state-space layers look at this; all others see one row with `positions`.
  const RowBatch* rows = nullptr;
  /// With `rows`: the cache of the layer that is running.
  LayerMemory* memory = nullptr;
  /// With `rows`: number of tokens of the longest sequence. If only device memory holds the lengths: an upper bound.
  int64_t longest_row = 0;
  /// Length of the longest packed document; 0 if documents are not packed.
  int64_t longest_document = 0;
  /// Context parallelism: each row holds this rank's share of a longer sequence, at `positions`. Only attention looks
  /// at the other ranks' tokens (ops::context_attention). Null: rows are whole sequences.
  std::shared_ptr<const ops::ContextShare> context;
  /// [documents + 1] i64, ascending from 0 to seq: boundaries of packed documents, the same in every row. Documents do
  /// not attend to each other, and positions restart in each. Undefined: one document. Not with a cache.
  Tensor document_starts;
  /// Host copy of document_starts, if the documents are the rows of a padded batch whose padding was removed: row r is
  /// tokens [row_starts[r], row_starts[r + 1]) of the single row. Empty: rows were not concatenated.
  std::vector<int64_t> row_starts;
  /// [batch, seq]: the segment of each token. Undefined: all in segment 0.
  Tensor segments;
  /// The encoder output that cross-attention reads if there is no cache.
  EncodedSource source;
  /// With a cache: number of source tokens in each row.
  std::vector<int64_t> source_lengths;
  ChunkNeighbours neighbours;

  /// Receives intermediate results. Null: nothing observes. Only in passes over whole sequences, without a cache.
  ForwardObserver* observer = nullptr;
  int64_t layer = 0;  ///< index of the layer that is running

  bool training = false;
  DropoutRates dropout;
  uint64_t seed = 0;
  uint64_t step = 0;
  /// Index of the first row in the whole batch, if this pass is a part of it. Dropout depends on the global row index.
  int64_t first_row = 0;
  /// Index of the next random stream. The model reserves a range per layer, so that a layer draws the same numbers when
  /// activation checkpointing runs it again.
  uint64_t stream = 0;

  /// Tape for selective recomputation (recompute.h). Null: everything that backward reads is stored.
  Tape* recompute = nullptr;
  /// The tensor-parallel ranks that compute this pass together. Null: this rank holds the whole model.
  const TensorParallel* parallel = nullptr;
  /// The expert-parallel ranks. Null: this rank has all experts.
  const ExpertParallel* experts = nullptr;
  /// Whether this pass covers whole sequences without a cache. Only then may ranks divide its tokens.
  bool whole_sequences = false;

  /// Auxiliary losses of layers, each a scalar that is already multiplied by its coefficient.
  std::vector<Tensor> losses;

  int64_t offset_of(int64_t row) const { return offsets.empty() ? offset : offsets[static_cast<size_t>(row)]; }
  int64_t count_of(int64_t row) const { return counts.empty() ? seq : counts[static_cast<size_t>(row)]; }
  /// Real tokens of a row after this call, including those in the cache.
  int64_t length_of(int64_t row) const { return offset_of(row) + count_of(row); }
  /// Whether rows have different offsets, or some rows end in padding.
  bool ragged() const { return !offsets.empty() || !counts.empty(); }
  /// Tokens of the longest row after this call, including those in the cache and padding.
  int64_t end() const;
  /// The largest position of a real token, counted from the start of its document.
  int64_t last_position() const;

  /// Whether the residual stream is this rank's share of the tokens, [1, tokens, d_model] (sequence parallel).
  bool divides_tokens() const;
  /// Index of the first token of this rank's residual stream among the batch · seq tokens.
  int64_t first_token() const;
  /// A run of tokens that are consecutive both in this rank's residual stream and in the whole batch.
  struct TokenRun {
    int64_t begin = 0;  ///< index in the residual stream
    int64_t count = 0;
    int64_t whole = 0;  ///< index of its first token in the whole batch
  };
  std::vector<TokenRun> token_runs(int64_t tokens) const;  ///< covers all `tokens` of the residual stream
  /// Before a sublayer, or another computation that ranks divide: residual stream, or its norm → [batch, seq, d_model].
  /// The gradient is summed over ranks.
  Tensor enter(const Tensor& x) const;
  /// After such a computation: sums the outputs of all ranks and returns this rank's part of the residual stream.
  Tensor leave(const Tensor& y) const;
  /// Within a sublayer: the sum of all ranks' values, which each rank then uses for its own channels. The gradient is
  /// summed over ranks.
  Tensor shared_sum(const Tensor& x) const;
  /// Runs experts on rows [slots, d_model], sorted by expert with boundaries `starts` [experts + 1]. Sends rows to the
  /// ranks that hold their experts and returns the outputs. `run` computes this rank's experts from their rows and
  /// boundaries.
  Tensor run_experts(const Tensor& sorted, const Tensor& starts, const ops::RunExperts& run) const;
  /// The load balancing loss (ops::balance_loss). With expert or context parallelism it covers the tokens of all ranks.
  /// `chosen` [experts] counts how often each expert is in `indices`.
  Tensor balance_loss(const Tensor& logits, const Tensor& indices, const Tensor& chosen) const;
  /// The residual stream as [batch, seq, d_model], for computations that every rank repeats.
  Tensor all_tokens(const Tensor& x) const;
  /// The part of values [batch, seq] for the tokens of this rank's residual stream.
  Tensor own_tokens(const Tensor& values) const;
  /// The part of `positions` for the tokens of this rank's residual stream. Undefined: offset + s.
  Tensor own_positions(const Device& device) const;

  /// Returns a new random stream, for one use.
  RandomKey draw() { return {seed, (step << 20U) + stream++}; }
  /// Applies dropout in training; otherwise returns x itself.
  Tensor drop(const Tensor& x, double probability);
};

/// The context of a single batch row, for layers that process ragged rows one at a time.
ForwardContext row_of(const ForwardContext& pass, int64_t row);

}  // namespace lamina::nn
