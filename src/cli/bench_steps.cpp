#include "lamina/cli/bench_steps.h"

#include "lamina/train/pass.h"

namespace lamina::cli {
namespace {

train::Recipe recipe_for(const arch::ArchSpec& spec, const BenchStepOptions& options) {
  train::Recipe recipe;
  recipe.architecture = spec;
  recipe.batch = options.batch;
  recipe.length = options.length;
  recipe.steps = options.updates;
  recipe.optimizer = train::AdamWChoice{.lr = 1e-4};
  recipe.dtype = options.bf16 ? train::Precision::bf16 : train::Precision::f32;
  recipe.checkpointing = options.checkpoint;
  return recipe;
}

}  // namespace

std::vector<int64_t> random_tokens(int64_t rows, int64_t length, int64_t vocab_size, uint64_t stream) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < rows * length; ++i) {
    ids.push_back(static_cast<int64_t>(philox_word({1, stream}, static_cast<uint64_t>(i))) % vocab_size);
  }
  return ids;
}

BenchSteps::BenchSteps(const arch::ArchSpec& spec, const Device& device, const BenchStepOptions& options)
    : learner_(recipe_for(spec, options), device) {
  batch_.rows = options.batch;
  batch_.length = options.length;
  batch_.source_length = options.source_length;
  batch_.ids = random_tokens(options.batch, options.length, spec.vocab_size, 0);
  batch_.source = random_tokens(options.batch, options.source_length, spec.vocab_size, 1);
  batch_.targets = batch_.ids;
  if (!spec.retrieval) return;
  const auto [chunk, count, length] = train::neighbour_sizes(spec);
  const int64_t chunks = options.length / chunk;
  batch_.neighbour_shape = {chunks, count, length};
  batch_.neighbours = random_tokens(options.batch, chunks * count * length, spec.vocab_size, 2);
}

train::StepTimes BenchSteps::run() {
  return learner_.step(step_++, [&](int64_t /*pass*/) { return batch_; }).times;
}

}  // namespace lamina::cli
