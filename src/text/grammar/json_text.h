#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lamina/text/grammar/grammar.h"
#include "lamina/text/grammar/rules.h"

namespace lamina::text::grammar {

using Json = nlohmann::ordered_json;

/// The elements of JSON's syntax, as expressions of a grammar. Rules that are used often are created only once.
class JsonText {
 public:
  JsonText(Rules& rules, const JsonOptions& options) : rules_(rules), options_(options) {}

  ExprId space();      ///< optional white space
  ExprId separator();  ///< the comma between elements
  ExprId any_value();  ///< any JSON value
  ExprId any_object();
  ExprId any_string();
  ExprId any_number();
  ExprId any_integer();
  ExprId boolean();
  ExprId string_of_length(uint64_t min, uint64_t max);
  /// A string whose content is accepted by an automaton over characters.
  ExprId string_of(CharNfa content);
  /// A member of an object. `key` is the expression of the key, including its quotes.
  ExprId member(ExprId key, ExprId value);
  ExprId key(const std::string& name);
  ExprId object(std::vector<ListItem> members);
  /// An array. `prefix` has the first elements, `rest` is every later one. Lengths from `min` to `max`, which may be
  /// kUnbounded.
  ExprId array(const std::vector<ExprId>& prefix, ExprId rest, uint32_t min, uint32_t max);
  /// Exactly this value, in a single spelling; objects and arrays have optional white space.
  ExprId constant(const Json& value);

 private:
  ExprId string_character();
  ExprId make_character();
  ExprId shared(std::optional<RuleId>& rule, const char* name, ExprId (JsonText::*make)());
  ExprId make_space();
  ExprId make_value();
  ExprId make_object();
  ExprId make_string();
  ExprId make_number();
  ExprId make_integer();
  ExprId between(const char* open, ExprId content, const char* close);

  Rules& rules_;
  const JsonOptions& options_;
  std::optional<RuleId> space_, value_, object_, string_, number_, integer_;
  std::optional<ExprId> character_;
};

/// A JSON string with its quotes, in the spelling that constants and keys use.
std::string quoted(const std::string& text);
/// A number in its shortest form. Integers have no fraction.
std::string number_text(const Json& number);

}  // namespace lamina::text::grammar
