#include "lamina/text/grammar/json_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace lamina::text::grammar {
namespace {

constexpr uint32_t kMaxIndent = 24;  // maximum white space after a line break

}  // namespace

std::string quoted(const std::string& text) { return Json(text).dump(); }

std::string number_text(const Json& number) {
  if (number.is_number_float()) {
    const double value = number.get<double>();
    if (std::floor(value) == value && std::abs(value) < 9e18) return std::to_string(static_cast<int64_t>(value));
  }
  return number.dump();
}

ExprId JsonText::shared(std::optional<RuleId>& rule, const char* name, ExprId (JsonText::*make)()) {
  if (!rule) {
    rule = rules_.add_rule(name);
    rules_.define(*rule, (this->*make)());
  }
  return rules_.rule(*rule);
}

ExprId JsonText::space() {
  if (options_.whitespace == JsonOptions::Whitespace::none) return rules_.empty();
  return rules_.optional(shared(space_, "white space", &JsonText::make_space));
}
ExprId JsonText::any_value() { return shared(value_, "JSON value", &JsonText::make_value); }
ExprId JsonText::any_object() { return shared(object_, "JSON object", &JsonText::make_object); }
ExprId JsonText::any_string() { return shared(string_, "JSON string", &JsonText::make_string); }
ExprId JsonText::any_number() { return shared(number_, "JSON number", &JsonText::make_number); }
ExprId JsonText::any_integer() { return shared(integer_, "JSON integer", &JsonText::make_integer); }
ExprId JsonText::boolean() { return rules_.choice({rules_.literal("true"), rules_.literal("false")}); }

ExprId JsonText::make_space() {
  CodeSet blank(' ', ' ');
  blank.add('\t');
  return rules_.choice(
      {rules_.literal(" "), rules_.sequence({rules_.optional(rules_.literal("\r")), rules_.literal("\n"),
                                             rules_.repeat(rules_.chars(blank), 0, kMaxIndent)})});
}

ExprId JsonText::make_value() {
  const ExprId value = any_value();
  return rules_.choice(
      {any_object(), array({}, value, 0, kUnbounded), any_string(), any_number(), boolean(), rules_.literal("null")});
}

ExprId JsonText::make_object() { return object({{member(any_string(), any_value()), false, true}}); }

ExprId JsonText::string_character() {
  if (!character_) character_ = make_character();
  return *character_;
}

ExprId JsonText::make_character() {
  CodeSet plain(0x20, kLastCodePoint);
  CodeSet special('"', '"');
  special.add('\\');
  plain = plain.intersect(special.complement());
  const auto set = [&](std::string_view members) {
    CodeSet result;
    for (const char c : members) result.add(static_cast<unsigned char>(c));
    return rules_.chars(result);
  };
  const ExprId digit = set("0123456789abcdefABCDEF");
  const ExprId not_surrogate =
      rules_.choice({rules_.sequence({set("0123456789abcefABCEF"), rules_.repeat(digit, 3, 3)}),
                     rules_.sequence({set("dD"), set("01234567"), digit, digit})});
  const ExprId pair = rules_.sequence(
      {set("dD"), set("89abAB"), digit, digit, rules_.literal("\\u"), set("dD"), set("cdefCDEF"), digit, digit});
  const ExprId escape =
      rules_.sequence({rules_.literal("\\"),
                       rules_.choice({set("\"\\/bfnrt"),
                                      rules_.sequence({rules_.literal("u"), rules_.choice({not_surrogate, pair})})})});
  return rules_.choice({rules_.chars(plain), escape});
}

ExprId JsonText::make_string() {
  return rules_.sequence(
      {rules_.literal("\""), rules_.repeat(string_character(), 0, kUnbounded), rules_.literal("\"")});
}

ExprId JsonText::make_number() {
  return rules_.automaton(pattern_nfa("-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?", Matching::whole, "number"));
}
ExprId JsonText::make_integer() {
  return rules_.automaton(pattern_nfa("-?(0|[1-9][0-9]*)", Matching::whole, "integer"));
}

ExprId JsonText::string_of_length(uint64_t min, uint64_t max) {
  const auto clamp = [](uint64_t n) { return static_cast<uint32_t>(std::min<uint64_t>(n, kUnbounded)); };
  return rules_.sequence(
      {rules_.literal("\""), rules_.repeat(string_character(), clamp(min), clamp(max)), rules_.literal("\"")});
}

ExprId JsonText::string_of(CharNfa content) {
  return rules_.sequence(
      {rules_.literal("\""), rules_.automaton(std::move(content), Spelling::json_string), rules_.literal("\"")});
}

ExprId JsonText::key(const std::string& name) { return rules_.literal(quoted(name)); }

ExprId JsonText::member(ExprId key, ExprId value) {
  return rules_.sequence({key, space(), rules_.literal(":"), space(), value});
}

ExprId JsonText::separator() { return rules_.sequence({space(), rules_.literal(","), space()}); }

ExprId JsonText::between(const char* open, ExprId content, const char* close) {
  return rules_.sequence({rules_.literal(open), space(), content, space(), rules_.literal(close)});
}

ExprId JsonText::object(std::vector<ListItem> members) {
  return between("{", rules_.list(std::move(members), separator()), "}");
}

ExprId JsonText::array(const std::vector<ExprId>& prefix, ExprId rest, uint32_t min, uint32_t max) {
  const auto n = static_cast<uint32_t>(prefix.size());
  const auto less = [](uint32_t a, uint32_t b) { return a == kUnbounded ? kUnbounded : (a > b ? a - b : 0); };
  const auto counted_rest = [&](uint32_t before) {  // the elements after the first `before` ones
    return rules_.repeat(rules_.sequence({separator(), rest}), less(min, before), less(max, before));
  };
  ExprId elements = 0;
  if (n == 0) {
    if (max == 0) {
      elements = rules_.empty();
    } else {
      elements = rules_.sequence({rest, counted_rest(1)});
      if (min == 0) elements = rules_.optional(elements);
    }
  } else {
    ExprId tail = max > n ? counted_rest(n) : rules_.empty();
    for (uint32_t i = std::min(n, max); i-- > 0;) {
      tail = i == 0 ? rules_.sequence({prefix[i], tail}) : rules_.sequence({separator(), prefix[i], tail});
      if (i >= min) tail = rules_.optional(tail);
    }
    elements = std::min(n, max) == 0 ? rules_.empty() : tail;
  }
  return between("[", elements, "]");
}

ExprId JsonText::constant(const Json& value) {
  if (value.is_object()) {
    std::vector<ListItem> members;
    for (const auto& [name, member_value] : value.items())
      members.push_back({member(key(name), constant(member_value))});
    return members.empty() ? rules_.literal("{}") : object(std::move(members));
  }
  if (value.is_array()) {
    std::vector<ExprId> elements;
    for (const Json& element : value) {
      if (!elements.empty()) elements.push_back(separator());
      elements.push_back(constant(element));
    }
    return elements.empty() ? rules_.literal("[]") : between("[", rules_.sequence(std::move(elements)), "]");
  }
  return rules_.literal(value.is_number() ? number_text(value) : value.dump());
}

}  // namespace lamina::text::grammar
