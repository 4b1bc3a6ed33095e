#include "lamina/nn/vocab_embedding.h"

#include "lamina/nn/init.h"
#include "lamina/ops/embedding/embedding.h"

namespace lamina::nn {

VocabEmbedding::VocabEmbedding(int64_t vocab, int64_t width, const Device& device, const VocabEmbeddingOptions& options)
    : options_(options) {
  LAMINA_CHECK(vocab > 0 && width > 0, "VocabEmbedding: vocab is ", vocab, " and width ", width,
               "; expected positive sizes");
  weight_ = Tensor::empty({vocab, width}, options.dtype, device);
  add_parameter("weight", weight_);
  reset_parameters();
}

Tensor VocabEmbedding::forward(const Tensor& ids) const {
  LAMINA_CHECK(ids.defined(), "VocabEmbedding: ids is undefined; give a tensor of token ids");
  return ops::embedding(weight_.to(ids.device()), ids);
}

void VocabEmbedding::reset_parameters() {
  init_normal(weight_, options_.init_mean, options_.init_std, options_.init_seed);
}

}  // namespace lamina::nn
