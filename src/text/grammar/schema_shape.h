#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lamina/text/grammar/char_dfa.h"
#include "lamina/text/grammar/json_text.h"
#include "lamina/text/grammar/number_dfa.h"

namespace lamina::text::grammar {

inline constexpr size_t kMaxShapes = 256;

/// A schema, and its JSON pointer for messages.
struct SubSchema {
  const Json* schema = nullptr;
  std::string path;
};
/// Schemas that a value must all satisfy.
using AllOf = std::vector<SubSchema>;

/// A schema without alternatives: the types that a value may have, and the constraints on each type. Constraints on
/// nested values remain schemas.
struct Shape {
  enum Type : uint8_t { null = 1, boolean = 2, integer = 4, fraction = 8, string = 16, array = 32, object = 64 };
  static constexpr uint8_t kNumber = integer | fraction;
  static constexpr uint8_t kAnyType = 127;

  uint8_t types = kAnyType;
  std::optional<std::vector<Json>> values;  ///< allowed values, from `enum` and `const`

  uint64_t min_length = 0;
  uint64_t max_length = kUnbounded;
  std::vector<std::pair<std::string, std::string>> patterns;  ///< expression, path

  struct Bound {
    Decimal value;
    bool upper = false;
    bool exclusive = false;
  };
  std::vector<Bound> bounds;
  std::vector<Decimal> divisors;

  AllOf array_groups;  ///< schemas with `items` or `prefixItems`
  uint64_t min_items = 0;
  uint64_t max_items = kUnbounded;

  AllOf object_groups;  ///< schemas with `properties`, `patternProperties` or `additionalProperties`
  std::vector<std::string> required;
  AllOf names;  ///< `propertyNames`
  uint64_t min_properties = 0;
  uint64_t max_properties = kUnbounded;

  bool constrains_strings() const { return min_length > 0 || max_length != kUnbounded || !patterns.empty(); }
  bool constrains_numbers() const { return !bounds.empty() || !divisors.empty(); }
  bool constrains_arrays() const { return !array_groups.empty() || min_items > 0 || max_items != kUnbounded; }
  bool constrains_objects() const {
    return !object_groups.empty() || !required.empty() || !names.empty() || min_properties > 0 ||
           max_properties != kUnbounded;
  }
};

/// Reads schemas of one document into shapes.
class SchemaReader {
 public:
  SchemaReader(const Json& root, const std::string& name) : root_(root), name_(name), work_{name} {}

  /// The alternatives of a set of schemas: a valid value has at least one of these shapes. Empty: no value is valid.
  std::vector<Shape> shapes(const AllOf& schemas);
  [[noreturn]] void fail(const std::string& path, const std::string& message) const;

  /// The schemas of a property: its own and those of matching patterns, or `additionalProperties` if there are none.
  AllOf property_schemas(const Shape& shape, const std::string& property, bool closed_objects);
  /// pattern_dfa: the automaton of a `pattern`, which matches substrings. string_dfa: that of a shape's strings, empty
  /// if any string fits.
  const CharDfa& pattern_dfa(const std::string& pattern, const std::string& path);
  std::optional<CharDfa> string_dfa(const Shape& shape);
  /// The automaton of a shape's numbers. Empty if any number fits.
  std::optional<CharDfa> number_dfa(const Shape& shape, bool integers);
  /// The location of a schema, for messages.
  DfaWork& work() { return work_; }
  std::string where(const std::string& path) const { return name_ + ": " + (path.empty() ? "#" : path); }

 private:
  using Shapes = std::vector<Shape>;
  void count_work(uint64_t steps);
  void apply(const SubSchema& schema, Shapes& shapes);
  void apply_keyword(const std::string& keyword, const Json& value, const SubSchema& schema, Shapes& shapes);
  bool apply_assertion(const std::string& keyword, const Json& value, const SubSchema& schema, Shapes& shapes);
  bool apply_number(const std::string& keyword, const Json& value, const std::string& path, Shapes& shapes);
  bool apply_count(const std::string& keyword, const Json& value, const std::string& path, Shapes& shapes);
  bool apply_combination(const std::string& keyword, const Json& value, const SubSchema& schema, Shapes& shapes);
  void apply_reference(const Json& value, const std::string& path, Shapes& shapes);
  void apply_alternatives(const Json& value, const std::string& path, bool exclusive, Shapes& shapes);
  void restrict_types(const Json& value, bool nullable, const std::string& path, Shapes& shapes) const;
  void restrict_values(const std::vector<Json>& values, Shapes& shapes);
  bool fits(const Json& value, const Shape& shape, const std::string& path);
  bool disjoint(const Shape& a, const Shape& b, int depth);
  bool properties_disjoint(const Shape& a, const Shape& b, int depth);
  void check_unused(const std::string& keyword, const Json& value, const SubSchema& schema) const;

  const Json& root_;
  const std::string& name_;
  std::vector<const Json*> references_;  // references that are being followed
  std::map<std::string, CharDfa> pattern_dfas_;
  DfaWork work_;
  uint64_t applied_ = 0;    // number of (keyword, shape) pairs processed
  bool comparing_ = false;  // whether disjoint() is running
  int depth_ = 0;
};

/// The type bits of a JSON value.
uint8_t type_of(const Json& value);

}  // namespace lamina::text::grammar
