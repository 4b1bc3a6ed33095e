#include "lamina/cli/retriever.h"

#include "lamina/cli/usage.h"
#include "lamina/infer/text_vectors.h"

namespace lamina::cli {

void RetrieverOptions::add_to(CLI::App& command) {
  command.add_option("--by", by, "Ranking: bm25, dense, or both fused (default: what the index has)")
      ->check(CLI::IsMember({"bm25", "dense", "both"}));
  command.add_option("--embedding-model", model,
                     "The model that the index was built with, if it is not where the index says");
  command.add_option("--beam", beam, "Vectors kept in a search of a graph; more find more and take longer")
      ->capture_default_str()
      ->check(at_least(1));
  command.add_flag("--exact", exact, "Compare with every vector although the index has a graph");
}

Retriever::Retriever(const std::string& folder, const RetrieverOptions& options, const Device& device)
    : index_(search::Index::open(folder)), device_(device) {
  using search::RankBy;
  const bool words = index_.settings().bm25;
  const auto& vectors = index_.settings().vectors;
  options_.by = options.by == "bm25"                         ? RankBy::bm25
                : options.by == "dense"                      ? RankBy::dense
                : options.by == "both" || (words && vectors) ? RankBy::both
                : words                                      ? RankBy::bm25
                                                             : RankBy::dense;
  options_.beam = options.beam;
  options_.exact = options.exact;
  // If the index lacks what a search needs, the search reports that.
  if (options_.by == RankBy::bm25 || !vectors) return;
  model_ =
      std::make_unique<infer::LoadedModel>(infer::load_embedder(*vectors, options.model, device, "--embedding-model"));
}

std::vector<search::Hit> Retriever::search(const std::string& query, int64_t top) const {
  search::Query asked{query, {}};
  if (model_) {
    const auto embedder = infer::text_embedder(*model_, infer::TextRole::query);
    asked.vector = embedder(std::vector<std::string>{query});
  }
  search::SearchOptions options = options_;
  options.top = top;
  return index_.search(asked, options, device_.threads());
}

}  // namespace lamina::cli
