// Tests: `x is NAME`.
#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/template/arguments.h"
#include "lamina/text/template/filters.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/unicode.h"

namespace lamina::text::jinja {
namespace {

using Test = bool (*)(Interpreter&, const Value&, const Arguments&);

using PlainTest = bool (*)(const Value&);  // a test without arguments

int64_t integer_operand(const Value& value) {
  if (value.is_undefined()) value.fail_undefined();
  if (value.is_integer() || value.is_bool()) return value.integer();
  throw Failure(str("expected an integer, got ", value.type_name()));
}

bool is_cased(const Value& value, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  const std::vector<char32_t> points = code_points(to_text(value));
  return std::ranges::any_of(points, wanted) && std::ranges::none_of(points, other);
}

bool has_items(const Value& value) {
  if (value.is_sequence())
    return value.items().kind != SequenceKind::generator && value.items().kind != SequenceKind::view;
  return value.is_string() || value.is_dict() || value.is_undefined();
}

bool same_object(const Value& a, const Value& b) {
  if (a.is_bool() != b.is_bool() || a.is_integer() != b.is_integer()) return false;
  if (a.is_dict() && b.is_dict()) return &a.entries() == &b.entries();
  if (a.is_sequence() && b.is_sequence()) return &a.items() == &b.items();
  return equal(a, b);
}

template <int wanted, bool or_equal>
bool ordering_test(Interpreter& run, const Value& value, const Arguments& given) {
  const Value& other = BoundArguments("comparison", given, {"other"}).value(0);
  run.charge(std::min(value.size(), other.size()));
  const int order = compare(value, other, wanted > 0 ? ">" : "<");
  return order * wanted > 0 || (or_equal && order == 0);
}

bool equal_test(Interpreter& run, const Value& value, const Arguments& given) {
  const Value& other = BoundArguments("equalto", given, {"other"}).value(0);
  run.charge(std::min(value.size(), other.size()));
  return equal(value, other);
}

bool in_test(Interpreter& run, const Value& value, const Arguments& given) {
  const Value& container = BoundArguments("in", given, {"seq"}).value(0);
  run.charge(container.size());
  return contains(container, value);
}

bool divisible_test(Interpreter& /*run*/, const Value& value, const Arguments& given) {
  const int64_t by = BoundArguments("divisibleby", given, {"num"}).integer(0);
  if (by == 0) throw Failure("integer modulo by zero");
  return by == -1 || integer_operand(value) % by == 0;
}

const std::unordered_map<std::string_view, PlainTest>& plain_tests() {
  static const std::unordered_map<std::string_view, PlainTest> table = {
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"boolean", [](const Value& v) { return v.is_bool(); }},
      {"true", [](const Value& v) { return v.is_bool() && v.truth(); }},
      {"false", [](const Value& v) { return v.is_bool() && !v.truth(); }},
      {"integer", [](const Value& v) { return v.is_integer(); }},
      {"float", [](const Value& v) { return v.is_real(); }},
      {"number", [](const Value& v) { return v.is_number(); }},
      {"string", [](const Value& v) { return v.is_string(); }},
      {"mapping", [](const Value& v) { return v.is_dict(); }},
      {"iterable", [](const Value& v) { return v.is_iterable() || v.loop() != nullptr; }},
      {"sequence", has_items},
      {"callable", [](const Value& v) { return v.is_callable() || v.is_undefined() || v.loop() != nullptr; }},
      {"escaped", [](const Value& v) { return v.is_markup(); }},
      {"odd", [](const Value& v) { return integer_operand(v) % 2 != 0; }},
      {"even", [](const Value& v) { return integer_operand(v) % 2 == 0; }},
      {"lower", [](const Value& v) { return is_cased(v, is_lower, is_upper); }},
      {"upper", [](const Value& v) { return is_cased(v, is_upper, is_lower); }},
  };
  return table;
}

const std::unordered_map<std::string_view, Test>& tests() {
  static const std::unordered_map<std::string_view, Test> table = {
      {"divisibleby", divisible_test},
      {"sameas",
       [](Interpreter&, const Value& v, const Arguments& given) {
         return same_object(v, BoundArguments("sameas", given, {"other"}).value(0));
       }},
      {"filter", [](Interpreter&, const Value& v, const Arguments&) { return find_filter(to_text(v)) != nullptr; }},
      {"test", [](Interpreter&, const Value& v,
                  const Arguments&) { return tests().contains(to_text(v)) || plain_tests().contains(to_text(v)); }},
      {"in", in_test},
      {"==", equal_test},
      {"eq", equal_test},
      {"equalto", equal_test},
      {"!=", [](Interpreter& run, const Value& v, const Arguments& given) { return !equal_test(run, v, given); }},
      {"ne", [](Interpreter& run, const Value& v, const Arguments& given) { return !equal_test(run, v, given); }},
      {">", ordering_test<1, false>},
      {"gt", ordering_test<1, false>},
      {"greaterthan", ordering_test<1, false>},
      {">=", ordering_test<1, true>},
      {"ge", ordering_test<1, true>},
      {"<", ordering_test<-1, false>},
      {"lt", ordering_test<-1, false>},
      {"lessthan", ordering_test<-1, false>},
      {"<=", ordering_test<-1, true>},
      {"le", ordering_test<-1, true>},
  };
  return table;
}

}  // namespace

bool Interpreter::call_test(const std::string& name, const Value& input, const Arguments& arguments) {
  charge(0);
  if (const auto plain = plain_tests().find(name); plain != plain_tests().end()) {
    const BoundArguments none(name, arguments, {});
    return plain->second(input);
  }
  const auto found = tests().find(name);
  if (found == tests().end()) throw Failure(str("the test '", name, "' is not supported"));
  return found->second(*this, input, arguments);
}

}  // namespace lamina::text::jinja
