// Resolves references, and decides whether two values or shapes exclude each other.
#include <algorithm>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/grammar/schema_shape.h"
#include "lamina/text/utf8.h"

namespace lamina::text::grammar {
namespace {

/// Decodes ~0, ~1 and %XX in one step of a JSON pointer.
std::string pointer_step(std::string_view step) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  std::string plain;
  for (size_t i = 0; i < step.size(); ++i) {
    const bool escaped = step[i] == '%' && i + 2 < step.size() && digit(step[i + 1]) >= 0 && digit(step[i + 2]) >= 0;
    plain += escaped ? static_cast<char>(digit(step[i + 1]) * 16 + digit(step[i + 2])) : step[i];
    if (escaped) i += 2;
  }
  std::string result;
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool escaped = plain[i] == '~' && i + 1 < plain.size() && (plain[i + 1] == '0' || plain[i + 1] == '1');
    result += escaped ? (plain[i + 1] == '0' ? '~' : '/') : plain[i];
    if (escaped) ++i;
  }
  return result;
}

uint64_t code_points(std::string_view text) {
  return static_cast<uint64_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Whether no number is within the bounds of both shapes.
bool ranges_disjoint(const Shape& a, const Shape& b) {
  for (const Shape::Bound& upper : a.bounds) {
    for (const Shape::Bound& lower : b.bounds) {
      if (!upper.upper || lower.upper) continue;
      const int order = compare(upper.value, lower.value);
      if (order < 0 || (order == 0 && (upper.exclusive || lower.exclusive))) return true;
    }
  }
  return false;
}

}  // namespace

void SchemaReader::apply_reference(const Json& value, const std::string& path, Shapes& shapes) {
  if (!value.is_string()) fail(path, "expected a string such as #/$defs/name");
  const std::string reference = value.get<std::string>();
  if (reference != "#" && !reference.starts_with("#/")) {
    fail(path, str("the reference \"", reference.substr(0, 80),
                   "\" is not supported; expected a JSON pointer within this schema, such as #/$defs/name"));
  }
  const Json* target = &root_;
  for (size_t at = 1; at < reference.size();) {
    const size_t end = std::min(reference.find('/', at + 1), reference.size());
    const std::string step = pointer_step(std::string_view(reference).substr(at + 1, end - at - 1));
    const Json* next = nullptr;
    if (target->is_object() && target->contains(step)) {
      next = &target->at(step);
    } else if (target->is_array() && !step.empty() && step.size() < 9 &&
               step.find_first_not_of("0123456789") == std::string::npos && std::stoul(step) < target->size()) {
      next = &target->at(std::stoul(step));
    }
    if (next == nullptr)
      fail(path, str("the reference \"", reference.substr(0, 200), "\" points to nothing in this schema"));
    target = next;
    at = end;
  }
  if (std::find(references_.begin(), references_.end(), target) != references_.end()) {
    fail(path, str("the reference \"", reference.substr(0, 200), "\" leads back to itself without describing a value"));
  }
  references_.push_back(target);
  apply({target, reference}, shapes);
  references_.pop_back();
}

const CharDfa& SchemaReader::pattern_dfa(const std::string& pattern, const std::string& path) {
  const auto found = pattern_dfas_.find(pattern);
  if (found != pattern_dfas_.end()) return found->second;
  CharDfa dfa = determinize(pattern_nfa(pattern, Matching::search, where(path)), work_);
  return pattern_dfas_.emplace(pattern, std::move(dfa)).first->second;
}

std::optional<CharDfa> SchemaReader::string_dfa(const Shape& shape) {
  std::optional<CharDfa> result;
  if (shape.min_length > 0 || shape.max_length != kUnbounded) {
    if (shape.patterns.empty()) return of_length(shape.min_length, shape.max_length, work_);
  }
  for (const auto& [pattern, path] : shape.patterns) {
    const CharDfa& dfa = pattern_dfa(pattern, path);
    result = result ? intersect(*result, dfa, work_) : dfa;
  }
  if (result && (shape.min_length > 0 || shape.max_length != kUnbounded)) {
    result = intersect(*result, of_length(shape.min_length, shape.max_length, work_), work_);
  }
  return result;
}

std::optional<CharDfa> SchemaReader::number_dfa(const Shape& shape, bool integers) {
  if (!shape.constrains_numbers()) return {};
  CharDfa result = plain_numbers(integers, work_);
  for (const Shape::Bound& bound : shape.bounds) {
    result = intersect(result, numbers_within(bound.value, bound.upper, bound.exclusive, work_), work_);
  }
  for (const Decimal& divisor : shape.divisors) result = intersect(result, multiples_of(divisor, work_), work_);
  return result;
}

bool SchemaReader::fits(const Json& value, const Shape& shape, const std::string& path) {
  const uint8_t type = type_of(value);
  if ((shape.types & type) == 0) return false;
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    const uint64_t length = code_points(text);
    if (length < shape.min_length || length > shape.max_length) return false;
    return std::all_of(shape.patterns.begin(), shape.patterns.end(),
                       [&](const auto& pattern) { return pattern_dfa(pattern.first, pattern.second).matches(text); });
  }
  if (value.is_number()) {
    const Decimal number = parse_decimal(value.dump(), where(path));
    for (const Shape::Bound& bound : shape.bounds) {
      const int order = compare(number, bound.value) * (bound.upper ? 1 : -1);
      if (order > 0 || (order == 0 && bound.exclusive)) return false;
    }
    return std::all_of(shape.divisors.begin(), shape.divisors.end(),
                       [&](const Decimal& divisor) { return is_multiple(number, divisor, where(path)); });
  }
  const bool constrained =
      (value.is_array() && shape.constrains_arrays()) || (value.is_object() && shape.constrains_objects());
  if (constrained) {
    fail(path, str("enum or const has the value ", value.dump().substr(0, 80),
                   " together with constraints on its elements, which is not supported; give one of the two"));
  }
  return true;
}

bool SchemaReader::disjoint(const Shape& a, const Shape& b, int depth) {
  uint8_t common = a.types & b.types;
  if (common == 0) return true;
  if (a.values || b.values) {
    const auto& values = a.values ? *a.values : *b.values;
    const Shape& other = a.values ? b : a;
    return std::none_of(values.begin(), values.end(), [&](const Json& value) {
      if (other.values && std::find(other.values->begin(), other.values->end(), value) == other.values->end())
        return false;
      const bool nested = value.is_structured() && (other.constrains_arrays() || other.constrains_objects());
      return nested || fits(value, other, "");
    });
  }
  if ((common & (Shape::null | Shape::boolean)) != 0) return false;
  if ((common & Shape::kNumber) != 0 && !ranges_disjoint(a, b) && !ranges_disjoint(b, a)) return false;
  if ((common & Shape::string) != 0) {
    const auto left = string_dfa(a);
    const auto right = string_dfa(b);
    if (!left || !right || !intersect(*left, *right, work_).empty()) return false;
  }
  if ((common & Shape::array) != 0 && a.min_items <= b.max_items && b.min_items <= a.max_items) return false;
  if ((common & Shape::object) == 0) return true;
  if (depth >= 4) return false;
  // Properties may refer to the schema that is being read. That is not a cycle here, and its oneOf is checked
  // elsewhere.
  const auto references = std::exchange(references_, {});
  const bool was_comparing = std::exchange(comparing_, true);
  const bool result = properties_disjoint(a, b, depth);
  references_ = references;
  comparing_ = was_comparing;
  return result;
}

bool SchemaReader::properties_disjoint(const Shape& a, const Shape& b, int depth) {
  return std::any_of(a.required.begin(), a.required.end(), [&](const std::string& property) {
    if (std::find(b.required.begin(), b.required.end(), property) == b.required.end()) {
      // They are disjoint if one requires a property that the other forbids.
      return shapes(property_schemas(b, property, false)).empty();
    }
    const std::vector<Shape> right = shapes(property_schemas(b, property, false));
    for (const Shape& left : shapes(property_schemas(a, property, false))) {
      for (const Shape& other : right) {
        if (!disjoint(left, other, depth + 1)) return false;
      }
    }
    return true;
  });
}

AllOf SchemaReader::property_schemas(const Shape& shape, const std::string& property, bool closed_objects) {
  static const Json kFalse = false;
  AllOf result;
  for (const SubSchema& group : shape.object_groups) {
    const Json& schema = *group.schema;
    count_work(1 + (schema.contains("properties") ? schema["properties"].size() / 16 : 0));
    bool listed = false;
    if (schema.contains("properties") && schema["properties"].contains(property)) {
      result.push_back({&schema["properties"][property], group.path + "/properties/" + property});
      listed = true;
    }
    if (schema.contains("patternProperties")) {
      for (const auto& [pattern, value] : schema["patternProperties"].items()) {
        const std::string path = group.path + "/patternProperties/" + pattern;
        if (!pattern_dfa(pattern, path).matches(property)) continue;
        result.push_back({&value, path});
        listed = true;
      }
    }
    if (listed) continue;
    if (schema.contains("additionalProperties")) {
      result.push_back({&schema["additionalProperties"], group.path + "/additionalProperties"});
    } else if (closed_objects) {
      result.push_back({&kFalse, group.path});
    }
  }
  return result;
}

}  // namespace lamina::text::grammar
