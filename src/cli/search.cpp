#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/retriever.h"
#include "lamina/cli/usage.h"

namespace lamina::cli {
namespace {

struct SearchArguments {
  std::string index;
  std::string query;
  RetrieverOptions options;
  DeviceChoice device;
  int64_t snippet = 40;
  bool json = false;
};

void print_hits_json(const SearchArguments& arguments, const search::Index& index,
                     const std::vector<search::Hit>& hits) {
  nlohmann::ordered_json report{{"query", arguments.query}, {"results", nlohmann::ordered_json::array()}};
  for (const search::Hit& hit : hits) {
    nlohmann::ordered_json result{{"score", hit.score},
                                  {"document", std::string(index.document(hit.row))},
                                  {"begin", index.begin(hit.row)},
                                  {"text", std::string(index.text(hit.row))}};
    if (hit.bm25_rank > 0) result["bm25_rank"] = hit.bm25_rank;
    if (hit.dense_rank > 0) result["dense_rank"] = hit.dense_rank;
    report["results"].push_back(std::move(result));
  }
  std::printf("%s\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

void search_index(const SearchArguments& arguments) {
  if (arguments.query.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw UsageError("the query is empty; give words to look for");
  }
  const Retriever retriever(arguments.index, arguments.options, arguments.device.open());
  const search::Index& index = retriever.index();
  const std::vector<search::Hit> hits = retriever.search(arguments.query, arguments.options.top);
  if (arguments.json) return print_hits_json(arguments, index, hits);
  if (hits.empty()) std::printf("nothing found in %lld passages\n", static_cast<long long>(index.passage_count()));
  for (size_t i = 0; i < hits.size(); ++i) {
    const search::Hit& hit = hits[i];
    std::printf("%2zu  %8.4f  %s, byte %llu", i + 1, hit.score, std::string(index.document(hit.row)).c_str(),
                static_cast<unsigned long long>(index.begin(hit.row)));
    if (retriever.by() == search::RankBy::both) {
      const auto rank = [](int64_t value) { return value > 0 ? std::to_string(value) : std::string("-"); };
      std::printf("  (bm25 %s, dense %s)", rank(hit.bm25_rank).c_str(), rank(hit.dense_rank).c_str());
    }
    std::printf("\n    %s\n", search::snippet_of(index.text(hit.row), arguments.query, arguments.snippet).c_str());
  }
}

}  // namespace

void add_search(CLI::App& program) {
  auto arguments = std::make_shared<SearchArguments>();
  CLI::App* command = program.add_subcommand("search", "Find passages in an index made by `lamina index build`");
  command->add_option("index", arguments->index, "The folder of the index")->required();
  command->add_option("query", arguments->query, "What to look for")->required();
  command->add_option("--top", arguments->options.top, "Most results")->capture_default_str()->check(at_least(1));
  arguments->options.add_to(*command);
  command->add_option("--snippet", arguments->snippet, "Words shown of each passage")
      ->capture_default_str()
      ->check(at_least(1));
  arguments->device.add_to(*command);
  command->add_flag("--json", arguments->json, "Print whole passages and scores as JSON");
  command->footer("Example: lamina search notes.index \"learning rate warm-up\" --top 3");
  command->callback([arguments] { search_index(*arguments); });
}

}  // namespace lamina::cli
