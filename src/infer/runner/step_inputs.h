#pragma once

#include "lamina/infer/engine/step.h"
#include "lamina/infer/runner/step_results.h"
#include "lamina/nn/model.h"

namespace lamina::infer {

/// Where to find the token of StepRow::previous: for each row of the previous plan, the index of its query in that
/// step.
using PreviousQueries = std::vector<int64_t>;

/// The tokens that a step computes for each row: those of the plan or, if the row's cached keys became invalid because
/// its RoPE frequencies depend on the length, the whole sequence.
class RowTokens {
 public:
  RowTokens(const nn::Model& model, int64_t rows) : model_(model), computed_(static_cast<size_t>(rows), {-1, 0}) {}

  struct Part {
    std::vector<TokenId> whole;  ///< all tokens of the row, if its cache is recomputed
    std::span<const TokenId> tokens;
    int64_t offset = 0;
    int64_t repeated = 0;  ///< number of recomputed tokens before those of the plan
  };
  Part part_of(const StepRow& row);

 private:
  const nn::Model& model_;
  /// Indexed by StepRow::slot: the row_id, and the sequence length for which its cache was last computed.
  std::vector<std::pair<int64_t, int64_t>> computed_;
};

/// The model call of a step, in host memory. Every rank that holds a part of the model makes the same call.
struct HostStep {
  std::vector<int64_t> ids;                  ///< new tokens of all rows
  std::vector<int32_t> offsets;              ///< per row: number of cached tokens
  std::vector<int32_t> counts;               ///< per row: number of new tokens
  std::vector<int32_t> slots;                ///< per row: state slot, or −1
  std::vector<std::vector<int32_t>> tables;  ///< per page group: [rows, width]
  std::vector<int64_t> wanted;               ///< indices of the tokens whose logits are needed
};

/// The rows of a step on a device.
nn::RowBatch row_batch(const HostStep& step, const nn::SequenceCache& cache, const Device& device);

/// A plan, as tensors on the model's device.
struct StepInputs {
  HostStep host;
  Tensor ids;  ///< [tokens] i64
  nn::RowBatch rows;
  Tensor wanted;  ///< [queries] i64: indices of the tokens whose logits are needed
  std::vector<SampleQuery> queries;
  StepInFlight flight;
};

/// Builds the inputs of a step. `previous` and `sampled` [n] come from the previous step, for rows whose first token
/// only the device knows.
StepInputs make_inputs(const StepPlan& plan, RowTokens& tokens, const nn::SequenceCache& cache,
                       const PreviousQueries& previous, const Tensor& sampled, const Device& device);

/// For each row of a step, the query of its first sample; −1 if it has no sample.
PreviousQueries first_samples(const StepInFlight& flight);

}  // namespace lamina::infer
