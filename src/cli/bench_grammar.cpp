#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/seconds_of.h"
#include "lamina/text/grammar/grammar_state.h"
#include "lamina/text/load.h"

namespace lamina::cli {
namespace {

struct GrammarBenchArguments {
  std::string tokenizer;
  std::vector<std::string> documents;
  std::string schema;
  bool prepare = false;
  bool json = false;
};

/// Time of one mask in microseconds, for each token of the documents.
std::vector<double> mask_times(const std::shared_ptr<text::TokenGrammar>& grammar, const text::Tokenizer& tokenizer,
                               const std::vector<std::string>& paths) {
  std::vector<double> times;
  std::vector<uint32_t> words(grammar->vocabulary().words());
  for (const std::string& path : paths) {
    std::string document = read_text(path);
    document.erase(document.find_last_not_of(" \r\n\t") + 1);
    text::GrammarState state(grammar);
    for (const text::TokenId id : tokenizer.encode(document)) {
      times.push_back(1e6 * seconds_of([&] { state.mask(words); }));
      LAMINA_CHECK(state.accept(id), path, ": the grammar does not allow token ", times.size(), ", \"",
                   tokenizer.token(id),
                   "\"; give a document that is valid under the schema, without a space before it");
    }
  }
  LAMINA_CHECK(!times.empty(), "the documents have no tokens");
  return times;
}

void run(const GrammarBenchArguments& arguments) {
  const auto tokenizer = text::load_tokenizer(arguments.tokenizer);
  const auto vocabulary = std::make_shared<const text::VocabularyIndex>(*tokenizer);
  std::optional<text::Grammar> compiled;
  const double compiling = seconds_of([&] {
    compiled = arguments.schema.empty() ? text::Grammar::json(true)
                                        : text::Grammar::json_schema(read_text(arguments.schema), {}, arguments.schema);
  });
  const auto grammar = std::make_shared<text::TokenGrammar>(*compiled, vocabulary);
  const double preparing = arguments.prepare ? seconds_of([&] { grammar->prepare(); }) : 0;
  nlohmann::json result = {
      {"vocabulary", vocabulary->size()}, {"compile_ms", compiling * 1e3}, {"prepare_ms", preparing * 1e3}};
  for (const char* pass : {"first", "second"}) {
    std::vector<double> times = mask_times(grammar, *tokenizer, arguments.documents);
    double sum = 0;
    for (const double time : times) sum += time;
    std::sort(times.begin(), times.end());
    result[pass] = {{"masks", times.size()},
                    {"mean_us", sum / static_cast<double>(times.size())},
                    {"median_us", times[times.size() / 2]},
                    {"p99_us", times[times.size() * 99 / 100]},
                    {"max_us", times.back()}};
  }
  if (arguments.json) {
    std::puts(result.dump().c_str());
    return;
  }
  std::printf("compile %.2f ms, prepare %.1f ms, %lld tokens in the vocabulary\n", compiling * 1e3, preparing * 1e3,
              static_cast<long long>(vocabulary->size()));
  for (const char* pass : {"first", "second"}) {
    const nlohmann::json& row = result[pass];
    std::printf("%-6s pass: %zu masks, mean %.1f us, median %.1f us, p99 %.1f us, max %.1f us\n", pass,
                row["masks"].get<size_t>(), row["mean_us"].get<double>(), row["median_us"].get<double>(),
                row["p99_us"].get<double>(), row["max_us"].get<double>());
  }
}

}  // namespace

void add_bench_grammar(CLI::App& bench) {
  auto arguments = std::make_shared<GrammarBenchArguments>();
  CLI::App* command =
      bench.add_subcommand("grammar", "Time of a token mask, over the tokens of JSON documents, one thread");
  command->add_option("tokenizer", arguments->tokenizer, "A tokenizer's file or folder")->required();
  command->add_option("documents", arguments->documents, "JSON files")->required();
  command->add_option("--schema", arguments->schema, "JSON schema that the documents follow (default: any JSON)");
  command->add_flag("--prepare", arguments->prepare, "Compute likely masks before the first token");
  command->add_flag("--json", arguments->json, "As JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
