#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>

#include "lamina/comm/communicator.h"
#include "lamina/data/objectives/objective_batches.h"
#include "lamina/data/tasks/task.h"
#include "lamina/nn/model.h"

namespace lamina::train {

/// Evaluation data: `batches` batches, each a function of its index.
struct EvaluationData {
  int64_t batches = 0;
  std::function<data::Batch(int64_t index)> at;
  bool accuracy = false;  ///< also measure accuracy, not only the loss
};

/// Splits a whole file into windows (data::evaluation_batch).
EvaluationData evaluation_of(const data::TokenFile& file, int64_t rows, int64_t length);
/// Splits a whole file into windows of an objective, the same corruption for every run.
EvaluationData evaluation_of(const data::TokenFile& file, int64_t rows, int64_t length,
                             const data::Objective& objective, const data::ObjectiveVocabulary& vocabulary);
/// Uses the first `examples` examples of one part of a task.
EvaluationData evaluation_of(const data::Task& task, data::TaskPart part, int64_t examples, int64_t rows,
                             int64_t length);

/// Accuracies in [0, 1].
struct Accuracy {
  double tokens = 0;    ///< share of scored tokens whose logit is the largest
  double examples = 0;  ///< share of rows in which every scored token is right
};

struct Measured {
  double loss = 0;  ///< mean cross entropy over the scored targets
  std::optional<Accuracy> accuracy;
};

/// Accumulates loss and accuracy over batches.
class Tally {
 public:
  /// With `accuracy`, computes logits at the scored positions only and compares their argmax with the targets.
  void add(nn::Model& model, const data::Batch& batch, bool accuracy);
  Measured result() const;

  /// All sums, as numbers that ranks can exchange.
  std::array<double, 5> numbers() const;
  void add_numbers(std::span<const double, 5> numbers);  ///< adds the sums of another tally

 private:
  void add_answers(nn::Model& model, const data::Batch& batch, const Tensor& ids);

  double loss_ = 0;
  int64_t targets_ = 0;
  int64_t right_ = 0;
  int64_t rows_ = 0;
  int64_t right_rows_ = 0;
};

/// Measures `data` with the batches shared between ranks. Sums are added batch by batch, so the result has the bits of
/// one rank's evaluation.
Measured evaluate_shared(nn::Model& model, const EvaluationData& data, comm::Communicator& communicator);

}  // namespace lamina::train
