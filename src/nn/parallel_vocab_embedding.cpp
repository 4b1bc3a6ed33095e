#include "lamina/nn/parallel_vocab_embedding.h"

#include "lamina/nn/init.h"
#include "lamina/ops/embedding/embedding.h"

namespace lamina::nn {

ParallelVocabEmbedding::ParallelVocabEmbedding(int64_t vocab, int64_t width, int64_t rank, int64_t world_size,
                                               const Device& device, const ParallelVocabEmbeddingOptions& options)
    : vocab_(vocab), rank_(rank), options_(options) {
  LAMINA_CHECK(vocab > 0 && width > 0, "ParallelVocabEmbedding: vocab is ", vocab, " and width ", width,
               "; expected positive sizes");
  LAMINA_CHECK(world_size > 0 && rank >= 0 && rank < world_size, "ParallelVocabEmbedding: rank ", rank, " of ",
               world_size, "; expected a rank in [0, world_size)");
  LAMINA_CHECK(vocab % world_size == 0, "ParallelVocabEmbedding: world_size ", world_size, " does not divide vocab ",
               vocab, "; pad the vocabulary to a multiple of it");
  weight_ = Tensor::empty({vocab / world_size, width}, options.dtype, device);
  add_parameter("weight", weight_);
  reset_parameters();
}

Tensor ParallelVocabEmbedding::forward(const Tensor& ids) const {
  LAMINA_CHECK(ids.defined(), "ParallelVocabEmbedding: ids is undefined; give a tensor of token ids");
  return ops::embedding(weight_.to(ids.device()), ids, {.first_row = first_row(), .vocab = vocab_});
}

void ParallelVocabEmbedding::reset_parameters() {
  init_normal(weight_, options_.init_mean, options_.init_std, options_.init_base_seed + static_cast<uint64_t>(rank_));
}

}  // namespace lamina::nn
