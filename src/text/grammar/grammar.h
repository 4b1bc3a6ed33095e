#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lamina::text {

namespace grammar {
struct Program;
}

/// How JSON is written under a grammar.
struct JsonOptions {
  enum class Whitespace {
    flexible,  ///< between two elements: nothing, a space, or a line break and up to 24 spaces or tabs
    none,      ///< compact
  };
  Whitespace whitespace = Whitespace::flexible;
  /// An object schema without `additionalProperties` allows only the properties it lists. By the standard it allows
  /// any.
  bool closed_objects = false;
};

/// A set of texts: the constraint on generated output. Compiled once, immutable, cheap to copy; threads may share it.
/// Every factory throws an Error for invalid input, for a construct it does not support, for a grammar that no text
/// matches, and beyond the limits on size and nesting. The message names the construct and its place.
class Grammar {
 public:
  /// The JSON documents that are valid under a JSON Schema (draft 2020-12; see docs/reference/structured-output.md for
  /// the keywords). Properties come in the schema's order. `name` names the source in messages.
  static Grammar json_schema(std::string_view schema, const JsonOptions& options = {},
                             const std::string& name = "schema");
  /// Any JSON object, or with `any_value` any JSON value.
  static Grammar json(bool any_value = false, const JsonOptions& options = {});
  /// Texts that a regular expression matches as a whole. Dialect: grammar/regex_syntax.h.
  static Grammar regex(std::string_view pattern, const std::string& name = "regex");
  /// GBNF, the notation of llama.cpp. The rule `root` is the whole text.
  static Grammar gbnf(std::string_view text, const std::string& name = "grammar");

  /// Whether the whole text belongs to the grammar.
  bool matches(std::string_view text) const;

  const std::shared_ptr<const grammar::Program>& program() const { return program_; }

 private:
  explicit Grammar(grammar::Program program);
  std::shared_ptr<const grammar::Program> program_;
};

}  // namespace lamina::text
