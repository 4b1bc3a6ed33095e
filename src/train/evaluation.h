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

/// Evaluation data: `batches` batches, each a function of its index only.
struct EvaluationData {
  int64_t batches = 0;
  std::function<data::Batch(int64_t index)> at;
  bool accuracy = false;  ///< also measure accuracy, not only the loss
};

/// Divides a whole file into windows (data::evaluation_batch).
EvaluationData evaluation_of(const data::TokenFile& file, int64_t rows, int64_t length);
/// Divides a whole file into windows of an objective, with the same corruption in every run. `start_token`: see
/// data::ObjectiveBatches.
EvaluationData evaluation_of(const data::TokenFile& file, int64_t rows, int64_t length,
                             const data::Objective& objective, const data::ObjectiveVocabulary& vocabulary,
                             std::optional<int64_t> start_token = {});
/// Uses the first `examples` examples of a part of a task. `with_source`: for an encoder–decoder model.
EvaluationData evaluation_of(const data::Task& task, data::TaskPart part, int64_t examples, int64_t rows,
                             int64_t length, bool with_source = false);
/// A batch of a task; `with_source` for an encoder–decoder model.
data::Batch task_batch(const data::Task& task, data::TaskPart part, uint64_t seed, int64_t first, int64_t rows,
                       int64_t length, bool with_source);

/// Accuracies in [0, 1].
struct Accuracy {
  double tokens = 0;    ///< share of scored tokens that have the largest logit
  double examples = 0;  ///< share of rows in which every scored token has the largest logit
};

/// Result of an evaluation.
struct Measured {
  double loss = 0;  ///< mean cross entropy over the scored targets
  std::optional<Accuracy> accuracy;
};

/// Accumulates loss and accuracy over batches.
class Tally {
 public:
  /// Adds a batch. With `accuracy`, also computes logits at the scored positions and compares their argmax with the
  /// targets. `stages` connects the pipeline stages of the model, if it has several; only the last stage adds anything.
  void add(nn::Model& model, const data::Batch& batch, bool accuracy, comm::Communicator* stages = nullptr);
  Measured result() const;

  /// All sums, for exchange between ranks.
  std::array<double, 5> numbers() const;
  void add_numbers(std::span<const double, 5> numbers);  ///< adds the sums of another tally

 private:
  void add_answers(nn::Model& model, const data::Batch& batch, const Tensor& hidden);

  double loss_ = 0;
  int64_t targets_ = 0;
  int64_t right_ = 0;
  int64_t rows_ = 0;
  int64_t right_rows_ = 0;
};

/// The ranks that evaluate together.
struct EvaluationRanks {
  comm::Communicator& data;              ///< ranks that share the batches
  comm::Communicator* stages = nullptr;  ///< pipeline stages; null: one
  /// Whether the ranks of `data` exchange tokens or weights within a pass, so that all must run the same number of
  /// passes.
  bool in_step = false;
};
/// Evaluates `data`, with the batches divided among ranks. Sums are added batch by batch, so the result is
/// bit-identical to an evaluation on one rank.
Measured evaluate_shared(nn::Model& model, const EvaluationData& data, const EvaluationRanks& ranks);

}  // namespace lamina::train
