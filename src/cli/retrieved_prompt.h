#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lamina/cli/retriever.h"

namespace lamina::cli {

/// Options of `lamina generate --retrieve`.
struct RetrievalChoice {
  std::string index;  ///< folder of the index; empty: no retrieval
  std::string form;   ///< file with the prompt template; empty: infer::kRetrievalTemplate
  RetrieverOptions options;

  void add_to(CLI::App& command);
};

/// A question with passages as one prompt.
struct RetrievedPrompt {
  std::string text;
  std::vector<nlohmann::ordered_json> sources;  ///< document, begin, score and text of each passage
};

/// Puts the best passages into the prompt: at most options.top, and no more than fit in `room` tokens.
RetrievedPrompt retrieved_prompt(const Retriever& retriever, const RetrievalChoice& choice,
                                 const text::Tokenizer& tokenizer, const std::string& question, int64_t room);

/// Prints the list of sources after an answer. Prints nothing if there are none.
void print_sources(const std::vector<nlohmann::ordered_json>& sources);

}  // namespace lamina::cli
