#pragma once

#include <cstdint>
#include <vector>

#include "lamina/base/philox.h"
#include "lamina/nn/device_clock.h"
#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Probabilities of dropping, each in [0, 1); used while training only.
struct DropoutRates {
  double embedding = 0.0;  ///< the sum of token and position embedding
  double attention = 0.0;  ///< attention weights
  double residual = 0.0;   ///< every branch, before it is added to the residual stream
};

/// What one call of the model tells its layers, and what they tell it back. Made by the model for every call.
struct Pass {
  int64_t batch = 0;
  int64_t seq = 0;
  /// Tokens of every row that came before this call and are in the cache: the first new token stands at this position.
  int64_t offset = 0;
  /// The same per row where rows differ; empty: `offset` holds for all. Only with a cache.
  std::vector<int64_t> offsets;
  /// How many of the seq tokens of each row are real; those behind are padding whose outputs mean nothing and which
  /// must not enter a state that later tokens see. Empty: all. Only with a cache.
  std::vector<int64_t> counts;
  /// [seq] or [batch, seq] i64: the position of each token, where it is not offset + s: ragged rows, packed documents.
  Tensor positions;
  /// Set in a step that a GPU may repeat (Model::step_logits): one token a row, whose place the clock alone knows; the
  /// host's offset is then that of a full cache, so that tables made from it serve every step.
  const DeviceClock* clock = nullptr;
  /// The length of the longest document, where there are several; 0 otherwise.
  int64_t longest_document = 0;
  /// [documents + 1] i64, ascending from 0 to seq: documents packed along seq that never see each other, the same in
  /// every row; positions count from a document's start. Undefined: one document. Not with a cache.
  Tensor document_starts;

  bool training = false;
  DropoutRates dropout;
  uint64_t seed = 0;
  uint64_t step = 0;
  /// Counts the random streams drawn so far. The model gives each layer a range of its own, so that a layer draws the
  /// same numbers when a checkpoint runs it again.
  uint64_t stream = 0;

  /// Losses that layers add to the model's, already multiplied by their coefficients: one number each.
  std::vector<Tensor> losses;

  int64_t offset_of(int64_t row) const { return offsets.empty() ? offset : offsets[static_cast<size_t>(row)]; }
  int64_t count_of(int64_t row) const { return counts.empty() ? seq : counts[static_cast<size_t>(row)]; }
  /// Real tokens of a row after this call, those of the cache included.
  int64_t length_of(int64_t row) const { return offset_of(row) + count_of(row); }
  /// Rows stand at different positions, or some end in padding.
  bool ragged() const { return !offsets.empty() || !counts.empty(); }
  /// Tokens of the longest row after this call, those of the cache and padding included.
  int64_t end() const;
  /// The largest position of a real token, counted in its document.
  int64_t last_position() const;

  /// A stream of random numbers for the next place that needs one.
  RandomKey draw() { return {seed, (step << 20U) + stream++}; }
  /// x with elements dropped while training; x itself otherwise.
  Tensor drop(const Tensor& x, double probability);
};

/// The pass of one row of the batch, for layers that must treat ragged rows one by one.
Pass row_of(const Pass& pass, int64_t row);

}  // namespace lamina::nn
