#pragma once

#include "lamina/infer/engine/step.h"
#include "lamina/ops/sampling/sample_rows.h"

namespace lamina::infer {

/// One token to sample or to score in a row. A row's scored tokens come before its sampled ones.
struct SampleQuery {
  const StepRow* row = nullptr;
  int64_t sample = -1;  ///< index among the row's samples; −1: not sampled, `scored` is the only allowed token
  TokenId scored = 0;
};

/// Whether a sample of the row may choose only some of the first `limit` ids.
bool has_mask(const StepRow& row, int64_t sample, int64_t limit);

/// Options of up to `capacity` queries in device memory. The addresses never change, because a captured CUDA graph
/// reads them.
class SamplingInputs {
 public:
  /// Only ids below `limit` are sampled; 0: all.
  SamplingInputs(int64_t capacity, int64_t vocab, int64_t limit, const Device& device);

  int64_t capacity() const { return capacity_; }
  int64_t limit() const { return limit_; }
  /// Uploads the options of these queries, at most `capacity`. The options of other places stay valid but have no
  /// meaning.
  void upload(std::span<const SampleQuery> queries);
  /// Options of the first `count` queries, without counts and bias; with their masks if `masked`.
  ops::RowSampling options(int64_t count, bool masked) const;

 private:
  enum Field : int64_t { temperature, top_p, min_p, typical_p, repetition, presence, frequency, kFields };
  void set(size_t index, const SampleQuery& query);
  void set_mask(size_t index, const SampleQuery& query);
  float& at(Field field, size_t index) {
    return host_floats_[static_cast<size_t>(field) * static_cast<size_t>(capacity_) + index];
  }

  int64_t capacity_;
  int64_t vocab_;
  int64_t limit_;
  int64_t words_;  ///< number of 32-bit words in a mask
  Tensor floats_;  ///< [kFields, capacity] f32
  Tensor longs_;   ///< [2, capacity] i64: seed, drawn
  Tensor top_k_;   ///< [capacity] i32
  Tensor mask_;    ///< [capacity, words] i32; allocated for the first mask
  std::vector<float> host_floats_;
  std::vector<int64_t> host_longs_;
  std::vector<int32_t> host_top_k_;
  std::vector<float> uploaded_floats_;  ///< the values of host_floats_ and host_top_k_ that are on the device
  std::vector<int32_t> uploaded_top_k_;
  std::vector<int32_t> host_mask_;
};

/// Occurrence counts of the queries' histories: [queries, vocab] i32, see RowSampling::counts. Undefined if no query
/// has penalties.
Tensor host_counts(std::span<const SampleQuery> queries, int64_t vocab, const Device& device);
/// Occurrence counts in one row's first `length` tokens.
std::vector<int32_t> history_counts(const StepRow& row, int64_t length, int64_t vocab);
/// Logit biases of the queries: [queries, vocab] f32. Undefined if no query has any.
Tensor host_bias(std::span<const SampleQuery> queries, int64_t vocab, const Device& device);
/// Applies the soft-caps of the queries to their logits [queries, vocab].
Tensor soft_capped(Tensor logits, std::span<const SampleQuery> queries);

}  // namespace lamina::infer
