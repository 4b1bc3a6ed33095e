#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lamina::text {

namespace grammar {
struct Program;
}

/// How a grammar writes JSON.
struct JsonOptions {
  enum class Whitespace {
    flexible,  ///< allows between two elements: nothing, a space, or a line break and up to 24 spaces or tabs
    none,      ///< no white space
  };
  Whitespace whitespace = Whitespace::flexible;
  /// An object schema without `additionalProperties` allows only the properties that it lists. The standard would allow
  /// any.
  bool closed_objects = false;
};

/// A set of texts that constrains generated output. It is compiled once, immutable and cheap to copy; threads may share
/// it. Every factory function throws an Error for invalid input, for an unsupported construct, for a grammar that no
/// text matches, and if a limit on size or nesting is exceeded. The message names the construct and its location.
class Grammar {
 public:
  /// The JSON documents that are valid under a JSON Schema (draft 2020-12; docs/reference/structured-output.md lists
  /// the keywords). Properties must come in the schema's order. `name` is the source's name in messages.
  static Grammar json_schema(std::string_view schema, const JsonOptions& options = {},
                             const std::string& name = "schema");
  /// Any JSON object; with `any_value` any JSON value.
  static Grammar json(bool any_value = false, const JsonOptions& options = {});
  /// The texts that a regular expression matches completely. The dialect is described in grammar/regex_syntax.h.
  static Grammar regex(std::string_view pattern, const std::string& name = "regex");
  /// GBNF, the notation of llama.cpp. The rule `root` must match the whole text.
  static Grammar gbnf(std::string_view text, const std::string& name = "grammar");

  /// Whether the whole text belongs to the grammar.
  bool matches(std::string_view text) const;

  const std::shared_ptr<const grammar::Program>& program() const { return program_; }

 private:
  explicit Grammar(grammar::Program program);
  std::shared_ptr<const grammar::Program> program_;
};

}  // namespace lamina::text
