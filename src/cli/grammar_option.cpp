#include "lamina/cli/grammar_option.h"

#include <vector>

#include "lamina/cli/text_input.h"

namespace lamina::cli {

void GrammarChoice::add_to(CLI::App& command) {
  const std::vector<CLI::Option*> options{
      command.add_option("--json-schema", json_schema, "A file with a JSON schema that the answer must satisfy"),
      command.add_flag("--json-object", json_object, "The answer must be a JSON object"),
      command.add_option("--regex", regex, "A regular expression that the whole answer must match"),
      command.add_option("--grammar", grammar, "A file with a GBNF grammar whose rule root is the answer")};
  for (CLI::Option* one : options) {
    for (CLI::Option* other : options) {
      if (one != other) one->excludes(other);
    }
  }
}

std::optional<text::Grammar> GrammarChoice::open() const {
  if (!json_schema.empty()) return text::Grammar::json_schema(read_input(json_schema), {}, json_schema);
  if (json_object) return text::Grammar::json();
  if (!regex.empty()) return text::Grammar::regex(regex, "--regex");
  if (!grammar.empty()) return text::Grammar::gbnf(read_input(grammar), grammar);
  return {};
}

std::shared_ptr<const infer::TokenMask> GrammarChoice::mask_for(const infer::LoadedModel& model,
                                                                const std::string& path) const {
  std::optional<text::Grammar> opened = open();
  if (!opened) return nullptr;
  const text::Tokenizer& tokenizer = infer::require_tokenizer(model);
  LAMINA_CHECK(!model.stop_tokens.empty(),
               "--json-schema, --json-object, --regex and --grammar need a model with an end-of-text token, so that an "
               "answer can end; ",
               path, " has none");
  const auto vocabulary =
      std::make_shared<const text::VocabularyIndex>(tokenizer, model.stop_tokens, model.model->spec().vocab_size);
  return infer::grammar_mask(std::make_shared<text::TokenGrammar>(std::move(*opened), vocabulary), tokenizer);
}

}  // namespace lamina::cli
