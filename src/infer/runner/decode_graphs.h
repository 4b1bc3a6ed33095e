#pragma once

#include <compare>
#include <map>
#include <memory>

#include "lamina/infer/runner/step_inputs.h"
#include "lamina/tensor/idle_time.h"
#include "lamina/tensor/replay.h"

namespace lamina::infer {

/// Decoding steps as CUDA graphs. Every row of the engine has a place in device memory with its page tables, length,
/// position, token and state slot. A graph runs the first `bucket` places; places without a row have length 0. A row
/// keeps its place between steps if possible, so that only changed page table entries are uploaded.
///
/// Capture takes as long as many steps, because libraries time their kernels. So if the batch shrinks only briefly, an
/// already captured graph with more places, or with wider page tables, is used.
class DecodeGraphs {
 public:
  struct Settings {
    int64_t rows = 256;
    int64_t context = 0;
    std::optional<DType> activations;         ///< see RowBatch::activations
    std::optional<DType> single_activations;  ///< as `activations`, for steps with one row
    IdleTime* idle = nullptr;                 ///< measures the time between steps; null: not measured
  };
  /// All arguments must outlive this object.
  DecodeGraphs(nn::Model& model, nn::SequenceCache& cache, SamplingInputs& sampling, StepResults& results,
               const Settings& settings);

  /// Whether graphs support the plan: every row has one token and one sample, no logit bias, no soft-cap, and no scored
  /// tokens.
  static bool supports(const StepPlan& plan);
  /// Queues the step. For `previous` and `sampled` see make_inputs().
  StepInFlight run(const StepPlan& plan, const PreviousQueries& previous, const Tensor& sampled);

 private:
  struct Key {
    int64_t bucket = 1;
    int64_t context = 0;  ///< tokens that fit the page tables, see decode_context()
    int64_t top = -1;     ///< number of likeliest tokens
    bool masked = false;
    bool penalised = false;
    auto operator<=>(const Key&) const = default;
    /// Whether the graph of this key can run a step of `other`. A step of one row uses other kernels and activation
    /// types than one of several rows.
    bool covers(const Key& other) const {
      return (bucket == 1) == (other.bucket == 1) && bucket >= other.bucket && context >= other.context &&
             top == other.top && masked == other.masked && penalised == other.penalised;
    }
  };
  void place_rows(const StepPlan& plan);
  void upload(const StepPlan& plan, const PreviousQueries& previous, const Tensor& sampled);
  void upload_tables(const StepPlan& plan);
  /// Updates the occurrence counts of rows with penalties to everything before the row's token.
  void prepare_counts(const StepPlan& plan);
  void step(const Key& key);
  /// The graph for a step with these properties or, while such steps are rare, a captured one that covers it.
  Replay& graph_for(const Key& key);
  Tensor line(const Tensor& all, int64_t index, int64_t count) const;

  nn::Model& model_;
  nn::SequenceCache& cache_;
  SamplingInputs& sampling_;
  StepResults& results_;
  Settings settings_;
  int64_t width_;  ///< columns of a page table
  Tensor inputs_;  ///< i64: memory of longs_ and ints_ together
  Tensor longs_;   ///< [2, rows + 1] i64: tokens (the last element receives unused ones), positions
  /// [4, rows] i32: lengths, state slots, counts_ row to increment (or −1), counts_ row to read (or 0).
  Tensor ints_;
  Tensor starts_;                   ///< [rows + 1] i32: 0, 1, 2, …
  std::vector<Tensor> tables_;      ///< per group: [rows, width] i32
  Tensor counts_;                   ///< [rows, vocab] i32, indexed by StepRow::slot; allocated when a row has penalties
  std::vector<int64_t> consumers_;  ///< places that receive the last step's sampled tokens, as uploaded
  Tensor consumers_on_device_;
  std::vector<int64_t> places_;                                  ///< row_id at each place; −1: no row
  std::vector<int64_t> place_of_row_;                            ///< indexed by row of the plan
  std::vector<std::vector<std::vector<int32_t>>> known_tables_;  ///< uploaded page tables, per group and place
  std::vector<std::pair<int64_t, int64_t>> counted_;             ///< per slot: row_id, and number of tokens in counts_
  struct Graph {
    std::unique_ptr<Replay> replay;
    int64_t wanted = 0;  ///< number of steps that would have used this graph
  };
  std::map<Key, Graph> graphs_;
};

/// The smallest batch size of a graph that has room for `rows`.
int64_t decode_bucket(int64_t rows, int64_t most);

/// How many tokens of a page table a graph of `bucket` rows reads, if the longest row has `length` tokens and page
/// tables have room for `most`. Kernels choose by the width of the tables: for one row with few tokens, attention and
/// output projection are one launch, which takes less shared memory for up to 256 tokens.
int64_t decode_context(int64_t bucket, int64_t length, int64_t most);

}  // namespace lamina::infer
