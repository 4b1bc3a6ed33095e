#pragma once

#include <deque>

#include "lamina/infer/runner/sampling_inputs.h"
#include "lamina/tensor/readback.h"

namespace lamina::infer {

/// Sampled tokens of a step, in device memory.
struct SampledTokens {
  Tensor ids;       ///< [queries] i64
  Tensor logprobs;  ///< [queries, 1 + top] f32; undefined if not requested
  Tensor top_ids;   ///< [queries, top] i64; undefined if top is 0
};

/// Record of a step in flight, on the host. Its StepResult is built from it.
struct StepInFlight {
  struct Query {
    size_t row = 0;       ///< row of the plan
    bool sampled = true;  ///< false: scores a given token
    int64_t index = 0;    ///< index among the row's results
    int64_t top = -1;     ///< number of likeliest tokens to report; −1: no log-probability either
  };
  size_t rows = 0;
  std::vector<Query> queries;
  int64_t top = -1;      ///< maximum of Query::top
  SampledTokens tokens;  ///< for wait() to read; undefined if a readback transfers the tokens
  bool in_readback = false;
};

/// Buffers at fixed addresses for the sampled tokens of steps with up to `capacity` queries, and their copies to the
/// host. On a GPU, a kernel at the end of the step writes them to pinned host memory, so that waiting for one step does
/// not wait for the next. Steps with more queries or more likeliest tokens use separate memory and a plain copy.
class StepResults {
 public:
  static constexpr int64_t kMaxTop = 20;

  StepResults(int64_t capacity, const Device& device);

  /// Whether the fixed buffers can take this many queries and likeliest tokens.
  bool fits(int64_t queries, int64_t top) const { return queries <= capacity_ && top <= kMaxTop; }
  /// The fixed buffers if fits(), otherwise new ones.
  SampledTokens buffers(int64_t queries, int64_t top) const;
  /// Call within the step's work, after sampling into the fixed buffers: copies them to the host.
  void write(int64_t top);
  /// Call after the step's work was queued.
  void mark(StepInFlight step);
  size_t in_flight() const { return steps_.size(); }
  /// Waits for the oldest step and returns its results.
  StepResult wait();

 private:
  int64_t logprobs_at() const { return capacity_; }
  int64_t top_ids_at() const { return capacity_ + (capacity_ * (1 + kMaxTop) + 1) / 2; }

  int64_t capacity_;
  Device device_;
  Tensor buffer_;                    ///< i64: ids, log-probabilities (f32 pairs), top ids
  std::unique_ptr<Readback> small_;  ///< transfers ids and one log-probability each
  std::unique_ptr<Readback> large_;  ///< transfers everything
  std::deque<StepInFlight> steps_;
};

}  // namespace lamina::infer
