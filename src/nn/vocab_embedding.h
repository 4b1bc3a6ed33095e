#pragma once

#include "lamina/nn/module.h"

namespace lamina::nn {

/// Options of VocabEmbedding.
struct VocabEmbeddingOptions {
  /// The table is initialised from a normal distribution, like nn.init.normal_.
  double init_mean = 0.0;
  double init_std = 1.0;     ///< see init_mean
  uint64_t init_seed = 42;   ///< see torch.manual_seed
  DType dtype = DType::f32;  ///< type of the table
};

/// Embedding lookup: one vector per token id.
///   weight  [vocab, width]   parameter
///   ids     [batch, seq]     i64 (or i32), each in [0, vocab); any other id is an error that names it; not modified
///   returns [batch, seq, width] in the weight's type, on the ids' device
class VocabEmbedding final : public Module {
 public:
  /// Initialises the table.
  VocabEmbedding(int64_t vocab, int64_t width, const Device& device, const VocabEmbeddingOptions& options = {});

  Tensor forward(const Tensor& ids) const;  ///< The rows of `ids` [batch, seq]: [batch, seq, width].
  void reset_parameters() override;
  const Tensor& weight() const { return weight_; }  ///< [vocab, width]

 private:
  VocabEmbeddingOptions options_;
  Tensor weight_;
};

}  // namespace lamina::nn
