#include "lamina/cli/retrieved_prompt.h"

#include <cstdio>

#include "lamina/cli/text_input.h"
#include "lamina/cli/usage.h"
#include "lamina/infer/retrieval.h"

namespace lamina::cli {

void RetrievalChoice::add_to(CLI::App& command) {
  CLI::Option* given = command.add_option("--retrieve", index,
                                          "An index of `lamina index build`: put its best passages into the prompt");
  command.add_option("--top", options.top, "Most passages of --retrieve")
      ->capture_default_str()
      ->check(at_least(1))
      ->needs(given);
  command
      .add_option("--template", form,
                  "A file with the prompt for --retrieve, in which {passages} and {question} are replaced")
      ->needs(given);
  options.add_to(command);
}

namespace {

void warn_without_passages(const std::string& index, size_t found, int64_t tokens, int64_t room) {
  if (found == 0) {
    std::fprintf(stderr, "lamina: --retrieve %s: no passage was found; the prompt has none\n", index.c_str());
    return;
  }
  std::fprintf(stderr,
               "lamina: --retrieve %s: no passage fits; the prompt has %lld tokens without any, the model has room for "
               "%lld. Give a shorter --template, fewer --tokens, or index shorter passages (--words)\n",
               index.c_str(), static_cast<long long>(tokens), static_cast<long long>(room));
}

}  // namespace

RetrievedPrompt retrieved_prompt(const Retriever& retriever, const RetrievalChoice& choice,
                                 const text::Tokenizer& tokenizer, const std::string& question, int64_t room) {
  const std::string form = choice.form.empty() ? infer::kRetrievalTemplate : read_input(choice.form);
  const search::Index& index = retriever.index();
  std::vector<search::Hit> hits = retriever.search(question, choice.options.top);
  const size_t found = hits.size();
  for (;; hits.pop_back()) {
    std::vector<infer::Passage> passages;
    for (const search::Hit& hit : hits) {
      passages.push_back({std::string(index.document(hit.row)), std::string(index.text(hit.row))});
    }
    RetrievedPrompt prompt{infer::retrieval_prompt(form, question, passages), {}};
    text::UnknownCharacters unknown;  // reported later, when the prompt is encoded for the model
    const auto tokens = static_cast<int64_t>(infer::prompt_ids(tokenizer, prompt.text, &unknown).size());
    if (tokens > room && !hits.empty()) continue;
    if (hits.empty()) warn_without_passages(choice.index, found, tokens, room);
    for (size_t i = 0; i < hits.size(); ++i) {
      prompt.sources.push_back({{"document", passages[i].source},
                                {"begin", index.begin(hits[i].row)},
                                {"score", hits[i].score},
                                {"text", passages[i].text}});
    }
    return prompt;
  }
}

void print_sources(const std::vector<nlohmann::ordered_json>& sources) {
  if (sources.empty()) return;
  std::printf("\nSources:\n");
  for (size_t i = 0; i < sources.size(); ++i) {
    std::printf("[%zu] %s, byte %s\n", i + 1, sources[i]["document"].get<std::string>().c_str(),
                sources[i]["begin"].dump().c_str());
  }
  std::fflush(stdout);
}

}  // namespace lamina::cli
