#pragma once

#include <memory>

#include "lamina/comm/communicator.h"
#include "lamina/nn/module.h"

namespace lamina::nn {

/// Options of ParallelVocabEmbedding.
struct ParallelVocabEmbeddingOptions {
  double init_mean = 0.0;  ///< mean of the initial values
  double init_std = 1.0;   ///< standard deviation of the initial values
  /// Rank r initialises its rows with seed init_base_seed + r.
  uint64_t init_base_seed = 42;
  DType dtype = DType::f32;  ///< type of the table
  /// Connects the ranks, so that forward() returns the whole embedding on every rank. Null: forward() returns this
  /// rank's part of the sum.
  std::shared_ptr<comm::Communicator> communicator = nullptr;
  /// Allow a world_size that does not divide vocab. Every rank then holds ⌈vocab / world_size⌉ rows; rows from vocab on
  /// are padding without a gradient.
  bool pad = false;
};

/// Vocabulary-parallel embedding: this rank holds rows [rank · n, (rank + 1) · n) with n = vocab / world_size. Ids of
/// other ranks give zeros, so the sum over all ranks is the embedding. With a communicator, forward() computes that
/// sum. Backward needs no communication: every rank has the gradient of the whole sum and computes the gradient of its
/// own rows.
///   weight  [n, width]       parameter
///   ids     [batch, seq]     i64 (or i32), each in [0, vocab); any other id is an error on every rank
class ParallelVocabEmbedding final : public Module {
 public:
  /// Throws Error unless world_size divides vocab (or `pad` is set), rank is below world_size, and a communicator has
  /// this rank and size. Initialises this rank's rows.
  ParallelVocabEmbedding(int64_t vocab, int64_t width, int64_t rank, int64_t world_size, const Device& device,
                         const ParallelVocabEmbeddingOptions& options = {});

  /// Embeddings [batch, seq, width] of the ids that this rank holds, zeros for others. With a communicator: the whole
  /// embedding; all ranks must then call it together, with the same ids.
  Tensor forward(const Tensor& ids) const;
  void reset_parameters() override;
  const Tensor& weight() const { return weight_; }  ///< [n, width]
  /// First vocabulary row that this rank holds.
  int64_t first_row() const { return rank_ * weight_.dim(0); }

 private:
  int64_t vocab_;
  int64_t rank_;
  ParallelVocabEmbeddingOptions options_;
  Tensor weight_;
};

}  // namespace lamina::nn
