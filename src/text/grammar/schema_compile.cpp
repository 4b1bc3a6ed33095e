#include <algorithm>
#include <map>
#include <set>

#include "lamina/base/error.h"
#include "lamina/base/json.h"
#include "lamina/text/grammar/json_schema.h"
#include "lamina/text/grammar/schema_shape.h"

namespace lamina::text::grammar {
namespace {

constexpr size_t kMaxSchemaRules = 20'000;
constexpr size_t kMaxNamedProperties = 2'000;
constexpr size_t kMaxPrefixItems = 100;
constexpr size_t kMaxKeyPatterns = 6;

uint32_t to_count(uint64_t n) { return static_cast<uint32_t>(std::min<uint64_t>(n, kUnbounded)); }

/// Writes the rules of a schema. There is one rule for each set of schemas that some value must satisfy together.
class SchemaCompiler {
 public:
  SchemaCompiler(const Json& root, const JsonOptions& options, const std::string& name)
      : name_(name), options_(options), reader_(root, name), text_(rules_, options) {
    value({{&root, "#"}});
  }

  Program compile() {
    while (!pending_.empty()) {
      const auto [rule, schemas] = std::move(pending_.back());
      pending_.pop_back();
      rules_.define(rule, shapes(schemas));
    }
    return grammar::compile(rules_, 0, name_);
  }

 private:
  /// The rule for a value that satisfies all these schemas.
  ExprId value(AllOf schemas) {
    std::erase_if(schemas, [](const SubSchema& s) { return s.schema->is_boolean() && s.schema->get<bool>(); });
    if (schemas.empty() && !rules_.rules().empty()) return text_.any_value();
    std::set<const Json*> key;
    for (const SubSchema& schema : schemas) key.insert(schema.schema);
    const auto [found, added] = rule_of_.try_emplace(key, 0);
    if (added) {
      LAMINA_CHECK(rule_of_.size() <= kMaxSchemaRules, name_, ": the schema has more than ", kMaxSchemaRules, " parts");
      found->second = rules_.add_rule(schemas.empty() ? "#" : schemas[0].path);
      pending_.emplace_back(found->second, std::move(schemas));
    }
    return rules_.rule(found->second);
  }

  ExprId shapes(const AllOf& schemas) {
    const std::string path = schemas.empty() ? "" : schemas[0].path;
    std::vector<ExprId> alternatives;
    for (const Shape& shape : reader_.shapes(schemas)) alternatives.push_back(one_shape(shape, path));
    return rules_.choice(std::move(alternatives));
  }

  ExprId one_shape(const Shape& shape, const std::string& path) {
    std::vector<ExprId> alternatives;
    if (shape.values) {
      for (const Json& constant : *shape.values) alternatives.push_back(text_.constant(constant));
      return rules_.choice(std::move(alternatives));
    }
    const bool unconstrained = !shape.constrains_strings() && !shape.constrains_numbers() &&
                               !shape.constrains_arrays() && !shape.constrains_objects();
    if (shape.types == Shape::kAnyType && unconstrained) return text_.any_value();
    if ((shape.types & Shape::null) != 0) alternatives.push_back(rules_.literal("null"));
    if ((shape.types & Shape::boolean) != 0) alternatives.push_back(text_.boolean());
    if ((shape.types & Shape::kNumber) != 0) alternatives.push_back(number(shape));
    if ((shape.types & Shape::string) != 0) alternatives.push_back(string(shape));
    if ((shape.types & Shape::array) != 0) alternatives.push_back(array(shape, path));
    if ((shape.types & Shape::object) != 0) alternatives.push_back(object(shape, path));
    return rules_.choice(std::move(alternatives));
  }

  ExprId number(const Shape& shape) {
    const bool integers = (shape.types & Shape::fraction) == 0;
    if (const auto dfa = reader_.number_dfa(shape, integers)) return rules_.automaton(dfa->to_nfa());
    return integers ? text_.any_integer() : text_.any_number();
  }

  ExprId string(const Shape& shape) {
    const bool bounded = shape.min_length > 0 || shape.max_length != kUnbounded;
    if (shape.patterns.empty()) {
      return bounded ? text_.string_of_length(shape.min_length, shape.max_length) : text_.any_string();
    }
    if (shape.patterns.size() == 1 && !bounded) {
      const auto& [pattern, path] = shape.patterns[0];
      return text_.string_of(pattern_nfa(pattern, Matching::search, reader_.where(path)));
    }
    return text_.string_of(reader_.string_dfa(shape)->to_nfa());
  }

  ExprId array(const Shape& shape, const std::string& path) {
    size_t n_prefix = 0;
    for (const SubSchema& group : shape.array_groups) n_prefix = std::max(n_prefix, prefix_of(group).size());
    if (n_prefix > kMaxPrefixItems)
      reader_.fail(path, str("prefixItems lists more than ", kMaxPrefixItems, " schemas"));
    std::vector<ExprId> prefix;
    for (size_t i = 0; i < n_prefix; ++i) prefix.push_back(value(element_schemas(shape, i)));
    const ExprId rest = value(element_schemas(shape, n_prefix));
    return text_.array(prefix, rest, to_count(shape.min_items), to_count(shape.max_items));
  }

  /// The schemas of the first elements: `prefixItems` or, as before draft 2020-12, a list in `items`.
  AllOf prefix_of(const SubSchema& group) const {
    const Json& schema = *group.schema;
    const char* keyword = schema.contains("prefixItems") ? "prefixItems" : "items";
    if (!schema.contains(keyword)) return {};
    const Json& list = schema[keyword];
    if (!list.is_array()) {
      if (std::string_view(keyword) == "prefixItems")
        reader_.fail(group.path + "/prefixItems", "expected a list of schemas");
      return {};
    }
    AllOf result;
    for (size_t i = 0; i < list.size(); ++i) {
      result.push_back({&list[i], str(group.path, "/", keyword, "/", i)});
    }
    return result;
  }

  AllOf element_schemas(const Shape& shape, size_t index) const {
    AllOf result;
    for (const SubSchema& group : shape.array_groups) {
      const AllOf prefix = prefix_of(group);
      const Json& schema = *group.schema;
      const bool listed = schema.contains("items") && schema["items"].is_array();
      if (listed && schema.contains("prefixItems"))
        reader_.fail(group.path + "/items", "expected a single schema, because prefixItems is given");
      const char* rest = listed ? "additionalItems" : "items";
      if (index < prefix.size()) {
        result.push_back(prefix[index]);
      } else if (schema.contains(rest)) {
        result.push_back({&schema[rest], group.path + "/" + rest});
      }
    }
    return result;
  }

  static const Json* member_of(const Json& schema, const char* keyword) {
    const auto found = schema.find(keyword);
    return found == schema.end() ? nullptr : &*found;
  }

  /// The properties with a fixed place in the order: first the listed ones, then those that are only required.
  std::vector<std::string> named_properties(const Shape& shape, const std::string& path) const {
    std::vector<std::string> names;
    std::set<std::string> seen;
    const auto add = [&](const std::string& property) {
      if (seen.insert(property).second) names.push_back(property);
    };
    for (const SubSchema& group : shape.object_groups) {
      if (const Json* properties = member_of(*group.schema, "properties")) {
        if (!properties->is_object()) reader_.fail(group.path + "/properties", "expected an object of schemas");
        for (const auto& [property, schema] : properties->items()) add(property);
      }
      const Json* patterns = member_of(*group.schema, "patternProperties");
      if (patterns != nullptr && !patterns->is_object()) {
        reader_.fail(group.path + "/patternProperties", "expected an object of schemas");
      }
    }
    for (const std::string& property : shape.required) add(property);
    if (names.size() > kMaxNamedProperties) {
      reader_.fail(path, str("an object has more than ", kMaxNamedProperties, " properties"));
    }
    return names;
  }

  /// The property names that `propertyNames` allows. Empty if it allows all.
  std::optional<CharDfa> name_dfa(const Shape& shape, const std::string& path) {
    if (shape.names.empty()) return {};
    std::vector<Shape> possible = reader_.shapes(shape.names);
    std::erase_if(possible, [](const Shape& s) { return (s.types & Shape::string) == 0; });
    if (possible.empty()) return CharDfa{{CharDfa::State{}}};
    if (possible.size() > 1) reader_.fail(path, "propertyNames with alternatives is not supported");
    if (possible[0].values) {
      std::vector<std::string> names;
      for (const Json& name : *possible[0].values) {
        if (name.is_string()) names.push_back(name.get<std::string>());
      }
      return any_of(names, reader_.work());
    }
    return reader_.string_dfa(possible[0]);
  }

  ExprId object(const Shape& shape, const std::string& path) {
    const std::vector<std::string> named = named_properties(shape, path);
    const std::optional<CharDfa> names = name_dfa(shape, path);
    std::vector<ListItem> members;
    for (const std::string& property : named) {
      const bool required = std::find(shape.required.begin(), shape.required.end(), property) != shape.required.end();
      if (names && !names->matches(property)) {
        if (required) return rules_.nothing();
        continue;
      }
      const AllOf schemas = reader_.property_schemas(shape, property, options_.closed_objects);
      members.push_back({text_.member(text_.key(property), value(schemas)), required, false});
    }
    const std::vector<ExprId> others = other_members(shape, named, names, path);
    const ExprId rest = rules_.choice(others);
    const bool counts = shape.min_properties > 0 || shape.max_properties != kUnbounded;
    if (counts && members.empty()) return counted_object(rest, shape);
    if (counts && !counts_hold(shape, members, others.empty())) {
      reader_.fail(path, "minProperties and maxProperties together with properties are not supported; use required");
    }
    if (!others.empty()) members.push_back({rest, false, true});
    return text_.object(std::move(members));
  }

  /// Whether every choice of members satisfies the limits on their number.
  static bool counts_hold(const Shape& shape, const std::vector<ListItem>& members, bool closed) {
    const auto required = static_cast<uint64_t>(
        std::count_if(members.begin(), members.end(), [](const ListItem& item) { return item.required; }));
    return required >= shape.min_properties &&
           (shape.max_properties == kUnbounded || (closed && members.size() <= shape.max_properties));
  }

  ExprId counted_object(ExprId member, const Shape& shape) {
    const uint32_t min = to_count(shape.min_properties);
    const uint32_t max = to_count(shape.max_properties);
    ExprId members = rules_.empty();
    if (max > 0) {
      const ExprId more = rules_.repeat(rules_.sequence({text_.separator(), member}), min > 0 ? min - 1 : 0,
                                        max == kUnbounded ? max : max - 1);
      members = rules_.sequence({member, more});
      if (min == 0) members = rules_.optional(members);
    }
    return rules_.sequence({rules_.literal("{"), text_.space(), members, text_.space(), rules_.literal("}")});
  }

  /// The members whose names are not listed, one for each set of patterns that a name can match.
  std::vector<ExprId> other_members(const Shape& shape, const std::vector<std::string>& named,
                                    const std::optional<CharDfa>& names, const std::string& path) {
    struct KeyPattern {
      const CharDfa* dfa;
      SubSchema schema;
      size_t group;
    };
    std::vector<KeyPattern> patterns;
    for (size_t g = 0; g < shape.object_groups.size(); ++g) {
      const SubSchema& group = shape.object_groups[g];
      const Json* listed = member_of(*group.schema, "patternProperties");
      if (listed == nullptr) continue;
      for (const auto& [pattern, schema] : listed->items()) {
        const std::string at = group.path + "/patternProperties/" + pattern;
        patterns.push_back({&reader_.pattern_dfa(pattern, at), {&schema, at}, g});
      }
    }
    if (patterns.size() > kMaxKeyPatterns) {
      reader_.fail(path, str("an object has more than ", kMaxKeyPatterns, " patternProperties"));
    }
    if (patterns.empty() && named.empty() && !names) {
      const AllOf schemas = rest_schemas(shape, {});
      if (impossible(schemas)) return {};
      return {text_.member(text_.any_string(), value(schemas))};
    }
    CharDfa free = names ? *names : of_length(0, kUnbounded, reader_.work());
    if (!named.empty()) free = subtract(free, any_of(named, reader_.work()), reader_.work());
    std::vector<ExprId> members;
    for (size_t subset = 0; subset < size_t{1} << patterns.size(); ++subset) {
      CharDfa keys = free;
      AllOf schemas;
      std::set<size_t> matched;
      for (size_t i = 0; i < patterns.size(); ++i) {
        const bool matches = (subset >> i & 1) != 0;
        keys = matches ? intersect(keys, *patterns[i].dfa, reader_.work())
                       : subtract(keys, *patterns[i].dfa, reader_.work());
        if (!matches) continue;
        schemas.push_back(patterns[i].schema);
        matched.insert(patterns[i].group);
      }
      if (keys.empty()) continue;
      const AllOf rest = rest_schemas(shape, matched);
      schemas.insert(schemas.end(), rest.begin(), rest.end());
      if (impossible(schemas)) continue;
      members.push_back(text_.member(text_.string_of(keys.to_nfa()), value(schemas)));
    }
    return members;
  }

  bool impossible(const AllOf& schemas) const {
    return std::any_of(schemas.begin(), schemas.end(),
                       [](const SubSchema& s) { return s.schema->is_boolean() && !s.schema->get<bool>(); });
  }

  /// The `additionalProperties` of the groups in which no pattern matched.
  AllOf rest_schemas(const Shape& shape, const std::set<size_t>& matched) const {
    static const Json kClosed = false;
    AllOf result;
    for (size_t g = 0; g < shape.object_groups.size(); ++g) {
      const SubSchema& group = shape.object_groups[g];
      if (matched.contains(g)) continue;
      if (const Json* additional = member_of(*group.schema, "additionalProperties")) {
        result.push_back({additional, group.path + "/additionalProperties"});
      } else if (options_.closed_objects) {
        result.push_back({&kClosed, group.path});
      }
    }
    return result;
  }

  const std::string& name_;
  const JsonOptions& options_;
  Rules rules_;
  SchemaReader reader_;
  JsonText text_;
  std::map<std::set<const Json*>, RuleId> rule_of_;
  std::vector<std::pair<RuleId, AllOf>> pending_;
};

}  // namespace

Program compile_json_schema(std::string_view schema, const JsonOptions& options, const std::string& name) {
  LAMINA_CHECK(schema.size() <= kMaxSchemaBytes, name, ": has ", schema.size(), " bytes; schemas have at most ",
               kMaxSchemaBytes);
  const Json root = parse_json<Json>(schema, name);
  return SchemaCompiler(root, options, name).compile();
}

}  // namespace lamina::text::grammar
