#pragma once

#include "lamina/data/objectives/objective.h"

namespace lamina::data {

/// Batches of an objective, for decoders and for encoders with a head over the vocabulary. A batch depends only on the
/// options and the step, as in Batches.
///
/// A decoder sees input and target of span and denoise in one row, and only the target is scored. An encoder–decoder
/// has the input as its source, between the vocabulary's begin and end tokens; its decoder sees the target, which ends
/// with the end token, after its start token. Together they take at most the options' length. All rows have the same
/// lengths: no padding.
class ObjectiveBatches {
 public:
  /// Throws Error if the file is too short, or the order is packed. `start_token`: for an encoder–decoder, whose
  /// decoder starts with it.
  ObjectiveBatches(TokenFile file, const BatchOptions& options, Objective objective, ObjectiveVocabulary vocabulary,
                   std::optional<int64_t> start_token = {});

  Batch at(int64_t step) const;  ///< the batch of a step, which counts from 0
  /// Steps that together cover about as many tokens as the file has.
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

/// Tokens of text that a row of this length takes.
int64_t text_length(const Objective& objective, int64_t length);

/// Whether the objective has an input apart from its target, for an encoder–decoder.
bool has_source(const Objective& objective);
/// How an encoder–decoder divides a number of tokens.
struct SourceLengths {
  int64_t text = 0;    ///< tokens of text
  int64_t source = 0;  ///< tokens of the source, with a begin and an end token
  int64_t target = 0;  ///< tokens of the target, with an end token
};
/// The longest text whose source and target together have at most `length` tokens. Throws Error unless has_source().
SourceLengths source_lengths(const Objective& objective, int64_t length);

}  // namespace lamina::data
