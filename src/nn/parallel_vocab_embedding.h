#pragma once

#include "lamina/nn/module.h"

namespace lamina::nn {

struct ParallelVocabEmbeddingOptions {
  double init_mean = 0.0;
  double init_std = 1.0;
  /// Rank r draws its rows with the seed init_base_seed + r.
  uint64_t init_base_seed = 42;
  DType dtype = DType::f32;
};

/// The rows [rank · n, (rank + 1) · n) of an embedding table spread over `world_size` ranks, n = vocab / world_size.
/// Ids of rows that other ranks hold give zeros: the sum of forward() over the ranks is the whole embedding, and as
/// each row's gradient arises on the rank that holds it, nothing is exchanged backward but the gradient of that sum.
///   weight  [n, width]       parameter
///   ids     [batch, seq]     i64 (or i32), each in [0, vocab): another is an error on every rank
class ParallelVocabEmbedding final : public Module {
 public:
  ParallelVocabEmbedding(int64_t vocab, int64_t width, int64_t rank, int64_t world_size, const Device& device,
                         const ParallelVocabEmbeddingOptions& options = {});

  Tensor forward(const Tensor& ids) const;
  void reset_parameters() override;
  const Tensor& weight() const { return weight_; }
  /// The first row held here.
  int64_t first_row() const { return rank_ * weight_.dim(0); }

 private:
  int64_t vocab_;
  int64_t rank_;
  ParallelVocabEmbeddingOptions options_;
  Tensor weight_;
};

}  // namespace lamina::nn
