#include "lamina/text/grammar/schema_shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "lamina/base/error.h"
#include "lamina/text/grammar/json_schema.h"

namespace lamina::text::grammar {
namespace {

constexpr int kMaxSchemaDepth = 100;
constexpr uint64_t kMaxApplied = 2'000'000;
constexpr size_t kMaxEnumValues = 10'000;

// Keywords that do not constrain a value.
constexpr std::array<std::string_view, 16> kAnnotations = {
    "title",         "description", "default", "examples", "deprecated",  "readOnly",         "writeOnly",
    "$comment",      "$schema",     "$id",     "$defs",    "definitions", "contentMediaType", "contentEncoding",
    "contentSchema", "id"};
// Keywords that are read together with other keywords.
constexpr std::array<std::string_view, 7> kGrouped = {
    "items", "prefixItems", "additionalItems", "nullable", "properties", "patternProperties", "additionalProperties"};
constexpr std::array<std::string_view, 19> kUnsupported = {"not",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "contains",
                                                           "minContains",
                                                           "maxContains",
                                                           "uniqueItems",
                                                           "dependencies",
                                                           "dependentSchemas",
                                                           "dependentRequired",
                                                           "unevaluatedItems",
                                                           "unevaluatedProperties",
                                                           "$dynamicRef",
                                                           "$dynamicAnchor",
                                                           "$anchor",
                                                           "$recursiveRef",
                                                           "$recursiveAnchor",
                                                           "$vocabulary"};
constexpr std::array<std::string_view, 22> kSupported = {"type",
                                                         "enum",
                                                         "const",
                                                         "minLength",
                                                         "maxLength",
                                                         "pattern",
                                                         "format",
                                                         "minimum",
                                                         "maximum",
                                                         "exclusiveMinimum",
                                                         "exclusiveMaximum",
                                                         "multipleOf",
                                                         "minItems",
                                                         "maxItems",
                                                         "required",
                                                         "propertyNames",
                                                         "minProperties",
                                                         "maxProperties",
                                                         "anyOf",
                                                         "oneOf",
                                                         "allOf",
                                                         "$ref"};

template <class List, class Item>
bool is_in(const List& list, const Item& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

uint8_t type_named(const std::string& type) {
  if (type == "null") return Shape::null;
  if (type == "boolean") return Shape::boolean;
  if (type == "integer") return Shape::integer;
  if (type == "number") return Shape::kNumber;
  if (type == "string") return Shape::string;
  if (type == "array") return Shape::array;
  if (type == "object") return Shape::object;
  return 0;
}

bool possible(const Shape& shape) { return shape.types != 0 && (!shape.values || !shape.values->empty()); }

/// Removes types whose limits on counts no value can satisfy.
void drop_impossible_types(Shape& shape) {
  if (shape.min_length > shape.max_length) shape.types &= static_cast<uint8_t>(~Shape::string);
  if (shape.min_items > shape.max_items) shape.types &= static_cast<uint8_t>(~Shape::array);
  if (shape.min_properties > shape.max_properties) shape.types &= static_cast<uint8_t>(~Shape::object);
}

}  // namespace

uint8_t type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return Shape::null;
    case Json::value_t::boolean: return Shape::boolean;
    case Json::value_t::string: return Shape::string;
    case Json::value_t::array: return Shape::array;
    case Json::value_t::object: return Shape::object;
    case Json::value_t::number_float: {
      const double number = value.get<double>();
      return std::floor(number) == number ? Shape::integer : Shape::fraction;
    }
    default: return Shape::integer;
  }
}

void SchemaReader::fail(const std::string& path, const std::string& message) const {
  throw Error(str(where(path), ": ", message));
}

std::vector<Shape> SchemaReader::shapes(const AllOf& schemas) {
  Shapes result = {Shape{}};
  for (const SubSchema& schema : schemas) apply(schema, result);
  for (Shape& shape : result) drop_impossible_types(shape);
  std::erase_if(result, [](const Shape& shape) { return !possible(shape); });
  // Values are checked last, against all other constraints.
  for (Shape& shape : result) {
    if (!shape.values) continue;
    const std::string path = schemas.empty() ? "" : schemas[0].path;
    std::erase_if(*shape.values, [&](const Json& value) { return !fits(value, shape, path); });
  }
  std::erase_if(result, [](const Shape& shape) { return !possible(shape); });
  return result;
}

void SchemaReader::count_work(uint64_t steps) {
  applied_ += steps;
  LAMINA_CHECK(applied_ <= kMaxApplied, name_,
               ": the schema's references and combinations take too long to expand; simplify them");
}

void SchemaReader::apply(const SubSchema& schema, Shapes& shapes) {
  count_work((1 + schema.schema->size()) * (1 + shapes.size()));
  if (schema.schema->is_boolean()) {
    if (!schema.schema->get<bool>()) shapes.clear();
    return;
  }
  if (!schema.schema->is_object()) {
    fail(schema.path, str("a schema is an object, true or false; found ", schema.schema->type_name()));
  }
  if (++depth_ > kMaxSchemaDepth)
    fail(schema.path, str("references and combinations are nested more than ", kMaxSchemaDepth, " deep"));
  for (const auto& [keyword, value] : schema.schema->items()) apply_keyword(keyword, value, schema, shapes);
  // Apply alternatives last, because they multiply the number of shapes.
  for (const auto& [keyword, value] : schema.schema->items()) apply_combination(keyword, value, schema, shapes);
  --depth_;
}

void SchemaReader::apply_keyword(const std::string& keyword, const Json& value, const SubSchema& schema,
                                 Shapes& shapes) {
  const std::string path = schema.path + "/" + keyword;
  if (is_in(kAnnotations, keyword)) {
    if ((keyword == "$id" || keyword == "id") && schema.schema != &root_) {
      fail(path, "an $id below the root is not supported; use $ref with a JSON pointer (#/…)");
    }
    const bool standard = value.is_string() && value.get<std::string>().find("://json-schema.org/") < 6;
    if (keyword == "$schema" && !standard) fail(path, "a custom metaschema is not supported; remove $schema");
    return;
  }
  if (keyword.starts_with("x-")) return;
  const bool groups_array = keyword == "items" || keyword == "prefixItems" || keyword == "additionalItems";
  const bool groups_object =
      keyword == "properties" || keyword == "patternProperties" || keyword == "additionalProperties";
  if (groups_array || groups_object) {
    for (Shape& shape : shapes) {
      AllOf& groups = groups_array ? shape.array_groups : shape.object_groups;
      if (groups.empty() || groups.back().schema != schema.schema) groups.push_back(schema);
    }
    return;
  }
  if (keyword == "nullable") {
    if (!value.is_boolean()) fail(path, "expected true or false");
    return;  // read together with type
  }
  if (apply_assertion(keyword, value, schema, shapes)) return;
  // Handled by apply_combination.
  if (keyword == "anyOf" || keyword == "oneOf" || keyword == "allOf" || keyword == "$ref") return;
  check_unused(keyword, value, schema);
}

void SchemaReader::check_unused(const std::string& keyword, const Json& value, const SubSchema& schema) const {
  const std::string path = schema.path + "/" + keyword;
  if (keyword == "uniqueItems" && value == Json(false)) return;
  if (is_in(kUnsupported, keyword)) fail(path, str("the keyword ", keyword, " is not supported; remove it"));
  std::vector<std::string> known(kSupported.begin(), kSupported.end());
  known.insert(known.end(), kGrouped.begin(), kGrouped.end());
  const std::string near = nearest_of(keyword, known);
  fail(path, str("unknown keyword \"", keyword.substr(0, 80), "\"",
                 near.empty() ? "; remove it, or write it as x-…" : str("; did you mean ", near, "?")));
}

bool SchemaReader::apply_assertion(const std::string& keyword, const Json& value, const SubSchema& schema,
                                   Shapes& shapes) {
  const std::string path = schema.path + "/" + keyword;
  if (keyword == "type") {
    const bool nullable = schema.schema->contains("nullable") && (*schema.schema)["nullable"] == Json(true);
    restrict_types(value, nullable, path, shapes);
  } else if (keyword == "enum") {
    if (!value.is_array()) fail(path, "expected a list of values");
    if (value.size() > kMaxEnumValues) fail(path, str("lists more than ", kMaxEnumValues, " values"));
    restrict_values({value.begin(), value.end()}, shapes);
  } else if (keyword == "const") {
    restrict_values({value}, shapes);
  } else if (keyword == "pattern" || keyword == "format") {
    if (!value.is_string()) fail(path, "expected a string");
    std::string pattern = value.get<std::string>();
    if (keyword == "format") {
      const char* known = format_pattern(pattern);
      if (known == nullptr) {
        fail(path, str("the format \"", pattern.substr(0, 80), "\" is not supported; supported: ", format_names()));
      }
      pattern = known;
    }
    parse_regex(pattern, where(path));  // reports errors even if the value cannot be a string
    for (Shape& shape : shapes) shape.patterns.emplace_back(pattern, path);
  } else if (keyword == "required") {
    if (!value.is_array()) fail(path, "expected a list of property names");
    for (const Json& property : value) {
      if (!property.is_string()) fail(path, "expected a list of property names");
      for (Shape& shape : shapes) {
        if (!is_in(shape.required, property.get<std::string>())) shape.required.push_back(property);
      }
    }
  } else if (keyword == "propertyNames") {
    for (Shape& shape : shapes) shape.names.push_back({&value, path});
  } else {
    return apply_number(keyword, value, path, shapes) || apply_count(keyword, value, path, shapes);
  }
  return true;
}

bool SchemaReader::apply_number(const std::string& keyword, const Json& value, const std::string& path,
                                Shapes& shapes) {
  const bool exclusive = keyword == "exclusiveMinimum" || keyword == "exclusiveMaximum";
  const bool upper = keyword == "maximum" || keyword == "exclusiveMaximum";
  if (!exclusive && !upper && keyword != "minimum" && keyword != "multipleOf") return false;
  if (!value.is_number()) fail(path, "expected a number");
  const Decimal number = parse_decimal(value.dump(), where(path));
  if (keyword == "multipleOf" && (number.negative || number.is_zero())) fail(path, "expected a positive number");
  for (Shape& shape : shapes) {
    if (keyword == "multipleOf") {
      shape.divisors.push_back(number);
    } else {
      shape.bounds.push_back({number, upper, exclusive});
    }
  }
  return true;
}

bool SchemaReader::apply_count(const std::string& keyword, const Json& value, const std::string& path, Shapes& shapes) {
  struct Count {
    std::string_view keyword;
    uint64_t Shape::*member;
    bool upper;
  };
  static constexpr Count kCounts[] = {
      {"minLength", &Shape::min_length, false},         {"maxLength", &Shape::max_length, true},
      {"minItems", &Shape::min_items, false},           {"maxItems", &Shape::max_items, true},
      {"minProperties", &Shape::min_properties, false}, {"maxProperties", &Shape::max_properties, true}};
  for (const Count& count : kCounts) {
    if (count.keyword != keyword) continue;
    const double number = value.is_number() ? value.get<double>() : -1;
    if (number < 0 || std::floor(number) != number) fail(path, "expected a whole number that is not negative");
    if (!count.upper && number > 1e6) fail(path, "a minimum above 1,000,000 is not supported");
    const uint64_t limit = number > 1e9 ? kUnbounded : static_cast<uint64_t>(number);
    for (Shape& shape : shapes) {
      uint64_t& member = shape.*count.member;
      member = count.upper ? std::min(member, limit) : std::max(member, limit);
    }
    return true;
  }
  return false;
}

void SchemaReader::restrict_types(const Json& value, bool nullable, const std::string& path, Shapes& shapes) const {
  uint8_t types = nullable ? Shape::null : 0;
  const auto add = [&](const Json& type) {
    const uint8_t bits = type.is_string() ? type_named(type.get<std::string>()) : 0;
    if (bits == 0) {
      fail(path, str("unknown type ", type.dump().substr(0, 80),
                     "; expected null, boolean, integer, number, string, array or object"));
    }
    types |= bits;
  };
  if (value.is_array()) {
    for (const Json& type : value) add(type);
  } else {
    add(value);
  }
  for (Shape& shape : shapes) shape.types &= types;
}

void SchemaReader::restrict_values(const std::vector<Json>& values, Shapes& shapes) {
  for (Shape& shape : shapes) {
    if (!shape.values) {
      shape.values.emplace();
      for (const Json& value : values) {
        if (!is_in(*shape.values, value)) shape.values->push_back(value);
      }
    } else {
      std::erase_if(*shape.values, [&](const Json& value) { return !is_in(values, value); });
    }
  }
}

bool SchemaReader::apply_combination(const std::string& keyword, const Json& value, const SubSchema& schema,
                                     Shapes& shapes) {
  const std::string path = schema.path + "/" + keyword;
  if (keyword == "$ref") {
    apply_reference(value, path, shapes);
    return true;
  }
  if (keyword != "allOf" && keyword != "anyOf" && keyword != "oneOf") return false;
  if (!value.is_array() || value.empty()) fail(path, "expected a list of schemas");
  if (keyword == "allOf") {
    for (size_t i = 0; i < value.size(); ++i) apply({&value[i], path + "/" + std::to_string(i)}, shapes);
  } else {
    apply_alternatives(value, path, keyword == "oneOf", shapes);
  }
  return true;
}

void SchemaReader::apply_alternatives(const Json& value, const std::string& path, bool exclusive, Shapes& shapes) {
  std::vector<Shapes> branches;
  Shapes all;
  for (size_t i = 0; i < value.size(); ++i) {
    Shapes branch = shapes;
    apply({&value[i], path + "/" + std::to_string(i)}, branch);
    for (Shape& shape : branch) drop_impossible_types(shape);
    std::erase_if(branch, [](const Shape& shape) { return !possible(shape); });
    all.insert(all.end(), branch.begin(), branch.end());
    if (all.size() > kMaxShapes) {
      fail(path, str("the alternatives combine to more than ", kMaxShapes, " cases; use fewer anyOf and oneOf"));
    }
    branches.push_back(std::move(branch));
  }
  for (size_t i = 0; exclusive && !comparing_ && i < branches.size(); ++i) {
    for (size_t j = i + 1; j < branches.size(); ++j) {
      for (const Shape& a : branches[i]) {
        for (const Shape& b : branches[j]) {
          if (disjoint(a, b, 0)) continue;
          fail(path, str("the alternatives ", i, " and ", j,
                         " of oneOf are not provably exclusive; use anyOf, or give them "
                         "different types or a required property with different const values"));
        }
      }
    }
  }
  shapes = std::move(all);
}

}  // namespace lamina::text::grammar
