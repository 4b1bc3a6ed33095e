#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "lamina/infer/runner/step_inputs.h"
#include "lamina/tensor/replay.h"

namespace lamina::infer {

/// Decoding steps as CUDA graphs. All rows of the engine have a place in device memory that holds their page tables,
/// length, position, token and state slot. A graph runs the first `bucket` places; places without a row have length 0.
/// A row keeps its place from step to step if it can, so that only page table entries that changed are uploaded.
/// Capturing takes as long as many steps, because libraries time their kernels. A batch that shrinks for a short while
/// therefore uses a captured graph with more places.
class DecodeGraphs {
 public:
  struct Settings {
    int64_t rows = 256;
    int64_t context = 0;
    std::optional<DType> activations;         ///< as RowBatch::activations
    std::optional<DType> single_activations;  ///< of steps with one row
  };
  /// All arguments must outlive this.
  DecodeGraphs(nn::Model& model, nn::SequenceCache& cache, SamplingInputs& sampling, StepResults& results,
               const Settings& settings);

  /// Whether the plan is a decoding step that graphs support: one token and one sample for every row, no logit bias, no
  /// soft-cap, no scored tokens.
  static bool supports(const StepPlan& plan);
  /// Queues the step. `previous` and `sampled` as in make_inputs().
  StepInFlight run(const StepPlan& plan, const PreviousQueries& previous, const Tensor& sampled);

 private:
  using Key = std::tuple<int64_t, int64_t, bool, bool>;  ///< bucket, likeliest tokens, masked, penalised
  void place_rows(const StepPlan& plan);
  void upload(const StepPlan& plan, const PreviousQueries& previous, const Tensor& sampled);
  void upload_tables(const StepPlan& plan);
  /// Makes the occurrence counts of penalised rows hold everything before the row's token.
  void prepare_counts(const StepPlan& plan);
  void step(const Key& key);
  /// The graph for a step of these properties, or a captured one with more places while it is seldom needed.
  Replay& graph_for(const Key& key);
  Tensor line(const Tensor& all, int64_t index, int64_t count) const;

  nn::Model& model_;
  nn::SequenceCache& cache_;
  SamplingInputs& sampling_;
  StepResults& results_;
  Settings settings_;
  int64_t width_;  ///< of a page table
  Tensor inputs_;  ///< i64: memory of longs_ and ints_
  Tensor longs_;   ///< [2, rows + 1] i64: tokens (the last takes unused ones), positions
  Tensor ints_;    ///< [4, rows] i32: lengths, state slots, row of counts_ to increment or −1, to read or 0
  Tensor starts_;  ///< [rows + 1] i32: 0, 1, 2, …
  std::vector<Tensor> tables_;      ///< per group: [rows, width] i32
  Tensor counts_;                   ///< [rows, vocab] i32 by StepRow::slot; made when a row has penalties
  std::vector<int64_t> consumers_;  ///< places of the last step's sampled tokens, as uploaded
  Tensor consumers_on_device_;
  std::vector<int64_t> places_;                                  ///< row_id at each place; −1: none
  std::vector<int64_t> place_of_row_;                            ///< by index in the plan
  std::vector<std::vector<std::vector<int32_t>>> known_tables_;  ///< per group and place
  std::vector<std::pair<int64_t, int64_t>> counted_;             ///< per slot: row_id and tokens in counts_
  struct Graph {
    std::unique_ptr<Replay> replay;
    int64_t wanted = 0;  ///< steps that would have used it
  };
  std::map<Key, Graph> graphs_;
};

/// The smallest batch size with a graph that has room for `rows`.
int64_t decode_bucket(int64_t rows, int64_t most);

}  // namespace lamina::infer
