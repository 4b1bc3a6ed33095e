#pragma once

#include <functional>
#include <optional>

#include "lamina/data/tasks/task.h"
#include "lamina/nn/model.h"

namespace lamina::train {

/// What a model is measured on: batches, each a function of its number.
struct EvaluationData {
  int64_t batches = 0;
  std::function<data::Batch(int64_t index)> at;
  bool accuracy = false;  ///< whether answers are right counts, beside the loss
};

/// A whole file in windows (data::evaluation_batch).
EvaluationData evaluation_of(const data::TokenFile& file, int64_t rows, int64_t length);
/// The first `examples` of a part of a task.
EvaluationData evaluation_of(const data::Task& task, data::TaskPart part, int64_t examples, int64_t rows,
                             int64_t length);

/// Shares of what was asked for.
struct Accuracy {
  double tokens = 0;    ///< of the scored tokens, those that the model holds for the most likely
  double examples = 0;  ///< of the rows, those in which every scored token is right
};

struct Measured {
  double loss = 0;  ///< mean cross entropy of the targets that count
  std::optional<Accuracy> accuracy;
};

/// Adds up batches.
class Tally {
 public:
  /// `accuracy`: logits of the scored places are compared too; needs no more than those.
  void add(nn::Model& model, const data::Batch& batch, bool accuracy);
  Measured result() const;

 private:
  void add_answers(nn::Model& model, const data::Batch& batch, const Tensor& ids);

  double loss_ = 0;
  int64_t targets_ = 0;
  int64_t right_ = 0;
  int64_t rows_ = 0;
  int64_t right_rows_ = 0;
};

}  // namespace lamina::train
