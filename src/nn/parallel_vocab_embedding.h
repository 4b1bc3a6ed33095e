#pragma once

#include "lamina/nn/module.h"

namespace lamina::nn {

/// Options of ParallelVocabEmbedding.
struct ParallelVocabEmbeddingOptions {
  double init_mean = 0.0;  ///< mean of the initial values
  double init_std = 1.0;   ///< their standard deviation
  /// Rank r initialises its rows with seed init_base_seed + r.
  uint64_t init_base_seed = 42;
  DType dtype = DType::f32;  ///< of the table
};

/// Vocabulary-parallel embedding: this rank holds rows [rank · n, (rank + 1) · n), n = vocab / world_size. Ids of other
/// ranks give zeros, so an all-reduce (sum) of forward() gives the embedding. Each row's gradient is computed on its
/// own rank; backward needs no communication except for the gradient of that sum.
///   weight  [n, width]       parameter
///   ids     [batch, seq]     i64 (or i32), each in [0, vocab); any other id is an error on every rank
class ParallelVocabEmbedding final : public Module {
 public:
  /// Throws Error unless world_size divides vocab and rank is below world_size. Initialises this rank's rows.
  ParallelVocabEmbedding(int64_t vocab, int64_t width, int64_t rank, int64_t world_size, const Device& device,
                         const ParallelVocabEmbeddingOptions& options = {});

  /// The embedding of the ids that this rank holds, zeros for others: [batch, seq, width].
  Tensor forward(const Tensor& ids) const;
  void reset_parameters() override;
  const Tensor& weight() const { return weight_; }  ///< [vocab / world_size, width]
  /// First vocabulary row held by this rank.
  int64_t first_row() const { return rank_ * weight_.dim(0); }

 private:
  int64_t vocab_;
  int64_t rank_;
  ParallelVocabEmbeddingOptions options_;
  Tensor weight_;
};

}  // namespace lamina::nn
