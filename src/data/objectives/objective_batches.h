#pragma once

#include "lamina/data/objectives/objective.h"

namespace lamina::data {

/// Batches of an objective, for decoders and for encoders with a head over the vocabulary. A batch depends only on the
/// options and the step, as in Batches.
///
/// A decoder sees input and target of span and denoise in one row, and only the target is scored.
class ObjectiveBatches {
 public:
  /// Throws Error if the file is too short, or the order is packed.
  ObjectiveBatches(TokenFile file, const BatchOptions& options, Objective objective, ObjectiveVocabulary vocabulary);

  Batch at(int64_t step) const;  ///< the batch of a step, which counts from 0
  /// Steps that together cover about as many tokens as the file has.
  int64_t steps_per_epoch() const { return windows_.steps_per_epoch(); }

 private:
  void fill_row(const std::vector<int64_t>& tokens, Dice& dice, int64_t row, Batch& batch) const;

  BatchOptions options_;
  Objective objective_;
  ObjectiveVocabulary vocabulary_;
  Batches windows_;
};

/// Tokens of text that a row of this length takes.
int64_t text_length(const Objective& objective, int64_t length);

}  // namespace lamina::data
