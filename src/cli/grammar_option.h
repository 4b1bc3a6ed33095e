#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "lamina/infer/grammar_mask.h"
#include "lamina/infer/load.h"
#include "lamina/text/grammar/grammar.h"

namespace lamina::cli {

/// Options that constrain an answer: --json-schema, --json-object, --regex, --grammar. At most one may be given.
struct GrammarChoice {
  std::string json_schema;
  std::string regex;
  std::string grammar;
  bool json_object = false;

  void add_to(CLI::App& command);
  /// The grammar that the options describe. Empty if none is given.
  std::optional<text::Grammar> open() const;
  /// The token mask of that grammar for a model. Null if none is given. `path` names the model in messages.
  std::shared_ptr<const infer::TokenMask> mask_for(const infer::LoadedModel& model, const std::string& path) const;
};

}  // namespace lamina::cli
