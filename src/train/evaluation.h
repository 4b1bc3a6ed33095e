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
/// Splits a whole file into windows of an objective, the same corruption for every run. `start_token` as in
/// data::ObjectiveBatches.
EvaluationData evaluation_of(const data::TokenFile& file, int64_t rows, int64_t length,
                             const data::Objective& objective, const data::ObjectiveVocabulary& vocabulary,
                             std::optional<int64_t> start_token = {});
/// Uses the first `examples` examples of one part of a task. `with_source`: for an encoder–decoder.
EvaluationData evaluation_of(const data::Task& task, data::TaskPart part, int64_t examples, int64_t rows,
                             int64_t length, bool with_source = false);
/// A task's batch, with a source for an encoder–decoder.
data::Batch task_batch(const data::Task& task, data::TaskPart part, uint64_t seed, int64_t first, int64_t rows,
                       int64_t length, bool with_source);

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
  /// `stages` connects the pipeline stages of the model, if it has several; only the last one adds anything.
  void add(nn::Model& model, const data::Batch& batch, bool accuracy, comm::Communicator* stages = nullptr);
  Measured result() const;

  /// All sums, as numbers that ranks can exchange.
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

/// The ranks of an evaluation.
struct EvaluationRanks {
  comm::Communicator& data;              ///< ranks that share the batches
  comm::Communicator* stages = nullptr;  ///< pipeline stages; null: one
  /// Whether the ranks of `data` exchange tokens, so that each must run as many passes as the others.
  bool in_step = false;
};
/// Measures `data` with the batches shared between ranks. Sums are added batch by batch, so the result has the bits of
/// one rank's evaluation.
Measured evaluate_shared(nn::Model& model, const EvaluationData& data, const EvaluationRanks& ranks);

}  // namespace lamina::train
