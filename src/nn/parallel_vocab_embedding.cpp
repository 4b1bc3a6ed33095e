#include "lamina/nn/parallel_vocab_embedding.h"

#include <algorithm>

#include "lamina/autograd/tape.h"
#include "lamina/nn/init.h"
#include "lamina/ops/embedding/embedding.h"

namespace lamina::nn {
namespace {

/// All-reduce of `part` over the ranks. Every rank gets the whole sum and its gradient, which is also the gradient of
/// each part.
Tensor sum_over_ranks(const Tensor& part, comm::Communicator& ranks) {
  const Tensor wide = part.detach().to(accumulation_type(part.dtype()));
  const Tensor sum = wide.shares_memory_with(part) ? wide.clone() : wide.contiguous();
  ranks.all_reduce(sum, {.label = "embedding"});
  Tensor result = sum.to(part.dtype());  // exact, because all parts but one are 0
  record("all_reduce", {part}, {result}, {}, [](Backward& b) { b.add(0, b.grad(0)); });
  return result;
}

}  // namespace

ParallelVocabEmbedding::ParallelVocabEmbedding(int64_t vocab, int64_t width, int64_t rank, int64_t world_size,
                                               const Device& device, const ParallelVocabEmbeddingOptions& options)
    : vocab_(vocab), rank_(rank), options_(options) {
  LAMINA_CHECK(vocab > 0 && width > 0, "ParallelVocabEmbedding: vocab is ", vocab, " and width ", width,
               "; expected positive sizes");
  LAMINA_CHECK(world_size > 0 && rank >= 0 && rank < world_size, "ParallelVocabEmbedding: rank ", rank, " of ",
               world_size, "; expected a rank in [0, world_size)");
  LAMINA_CHECK(options.pad || vocab % world_size == 0, "ParallelVocabEmbedding: world_size ", world_size,
               " does not divide vocab ", vocab, "; set `pad`, or pad the vocabulary to a multiple of it");
  LAMINA_CHECK(
      !options.communicator || (options.communicator->rank() == rank && options.communicator->size() == world_size),
      "ParallelVocabEmbedding: rank ", rank, " of ", world_size, ", the communicator has another rank or size");
  weight_ = Tensor::empty({(vocab + world_size - 1) / world_size, width}, options.dtype, device);
  add_parameter("weight", weight_);
  reset_parameters();
}

Tensor ParallelVocabEmbedding::forward(const Tensor& ids) const {
  LAMINA_CHECK(ids.defined(), "ParallelVocabEmbedding: ids is undefined; give a tensor of token ids");
  const int64_t held = std::clamp<int64_t>(vocab_ - first_row(), 0, weight_.dim(0));  // the remaining rows are padding
  Tensor part;
  if (held > 0) {
    const Tensor rows = held == weight_.dim(0) ? weight_ : weight_.slice(0, 0, held);
    part = ops::embedding(rows.to(ids.device()), ids, {.first_row = first_row(), .vocab = vocab_});
  } else {
    part = Tensor::zeros({ids.dim(0), ids.dim(1), weight_.dim(1)}, weight_.dtype(), ids.device());
  }
  return options_.communicator ? sum_over_ranks(part, *options_.communicator) : part;
}

void ParallelVocabEmbedding::reset_parameters() {
  init_normal(weight_, options_.init_mean, options_.init_std, options_.init_base_seed + static_cast<uint64_t>(rank_));
}

}  // namespace lamina::nn
