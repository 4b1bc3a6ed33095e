#include "lamina/cli/neighbours_option.h"

#include <memory>

namespace lamina::cli {

void NeighboursChoice::add_to(CLI::App& command) {
  command.add_option("--retrieval", index,
                     "An index of `lamina index build`: neighbours of each chunk, for a model with retrieval");
}

infer::NeighboursOf NeighboursChoice::open(const infer::LoadedModel& model, const RetrieverOptions& options) const {
  if (index.empty()) return {};
  const auto& retrieval = model.model->spec().retrieval;
  LAMINA_CHECK(retrieval, model.path,
               ": the architecture has no retrieval, so --retrieval has no effect; put passages ",
               "into the prompt with --retrieve of generate, or train an architecture with retrieval");
  const auto retriever = std::make_shared<Retriever>(index, options, model.model->device());
  const auto chunks = std::make_shared<infer::ChunkRetriever>(
      retriever->index(), [retriever](const std::string& text, int64_t top) { return retriever->search(text, top); },
      infer::require_tokenizer(model), *retrieval);
  return [chunks](std::span<const text::TokenId> chunk) { return chunks->find(chunk); };
}

}  // namespace lamina::cli
