#pragma once

#include "lamina/data/objectives/objective.h"

namespace lamina::data {

/// Batches of an objective, for decoders and for encoders with a head over the vocabulary. A batch depends only on the
/// options and the step, like those of Batches.
///
/// With span and denoise, a decoder sees input and target in one row, and only the target is scored. For an
/// encoder–decoder model, the input is the source, between the vocabulary's begin and end tokens. The decoder sees the
/// target after its start token; the target ends with the end token. Source and target together have at most the
/// options' length. All rows have the same lengths, without padding.
class ObjectiveBatches {
 public:
  /// Throws an Error if the file is too short or the order is packed. `start_token` is the first token of the decoder,
  /// for an encoder–decoder model.
  ObjectiveBatches(TokenFile file, const BatchOptions& options, Objective objective, ObjectiveVocabulary vocabulary,
                   std::optional<int64_t> start_token = {});

  Batch at(int64_t step) const;  ///< the batch of a step; steps count from 0
  /// Number of steps that together cover about as many tokens as the file has.
  int64_t steps_per_epoch() const { return windows_.steps_per_epoch(); }

 private:
  void fill_row(const std::vector<int64_t>& tokens, Dice& dice, int64_t row, Batch& batch) const;
  void add_pair(const std::vector<int64_t>& tokens, Dice& dice, Batch& batch) const;

  BatchOptions options_;
  Objective objective_;
  ObjectiveVocabulary vocabulary_;
  std::optional<int64_t> start_token_;
  Batches windows_;
};

/// Number of text tokens in a row of this length.
int64_t text_length(const Objective& objective, int64_t length);

/// Whether the objective has an input that is separate from its target, as an encoder–decoder model needs.
bool has_source(const Objective& objective);
/// How an encoder–decoder model divides a number of tokens.
struct SourceLengths {
  int64_t text = 0;    ///< number of text tokens
  int64_t source = 0;  ///< length of the source, including begin and end tokens
  int64_t target = 0;  ///< length of the target, including the end token
};
/// The longest text for which source and target together have at most `length` tokens. Throws an Error unless
/// has_source().
SourceLengths source_lengths(const Objective& objective, int64_t length);

}  // namespace lamina::data
