#include "lamina/arch/edit.h"

#include <nlohmann/json.hpp>

#include "lamina/arch/schema.h"

namespace lamina::arch {
namespace {

constexpr size_t kMaxPath = 512;

/// One part of a path: a key, or an index. Index -1 stands for [*].
struct Step {
  std::string key;
  int64_t index = 0;
  bool is_index = false;
};

Step parse_index(const std::string& path, size_t& at) {
  const size_t close = path.find(']', at);
  LAMINA_CHECK(close != std::string::npos, "path \"", path, "\": [ without ]; write layers[0] or layers[*]");
  const std::string inside = path.substr(at + 1, close - at - 1);
  at = close + 1;
  if (inside == "*") return {"", -1, true};
  const bool digits =
      !inside.empty() && inside.size() < 9 && inside.find_first_not_of("0123456789") == std::string::npos;
  LAMINA_CHECK(digits, "path \"", path, "\": [", inside, "] is not an index; write a number or *");
  return {"", std::stoll(inside), true};
}

std::vector<Step> parse_path(const std::string& path) {
  LAMINA_CHECK(!path.empty() && path.size() <= kMaxPath, "path \"", path.substr(0, 60),
               "\": expected something like position.theta or layers[0].pattern[0].ffn.d_ff");
  std::vector<Step> steps;
  size_t at = 0;
  while (at < path.size()) {
    if (path[at] == '[') {
      steps.push_back(parse_index(path, at));
      continue;
    }
    if (path[at] == '.' && at > 0) ++at;
    const size_t end = std::min(path.find_first_of(".[", at), path.size());
    LAMINA_CHECK(end > at, "path \"", path, "\": a key is missing at character ", at + 1);
    steps.push_back({path.substr(at, end - at), 0, false});
    at = end;
  }
  return steps;
}

class Setter {
 public:
  Setter(const std::string& path, const Json& value, const char* whole)
      : path_(path), steps_(parse_path(path)), value_(value), whole_(whole) {}

  void set(const SchemaNode& node, Json& json, size_t step) {
    if (step == steps_.size()) {
      json = value_;
    } else if (node.type == SchemaNode::Type::list) {
      set_element(node, json, step);
    } else {
      set_member(node, json, step);
    }
  }

 private:
  void set_element(const SchemaNode& node, Json& json, size_t step) {
    LAMINA_CHECK(steps_[step].is_index, where(step), " is a list; write ", before(step), "[0] or ", before(step),
                 "[*]");
    if (!json.is_array()) json = Json::array();
    const int64_t index = steps_[step].index;
    LAMINA_CHECK(index < static_cast<int64_t>(json.size()), where(step), " has ", json.size(), " elements, [", index,
                 "] is out of range");
    for (size_t i = 0; i < json.size(); ++i) {
      if (index < 0 || static_cast<size_t>(index) == i) set(node.element[0], json[i], step + 1);
    }
  }

  void set_member(const SchemaNode& node, Json& json, size_t step) {
    const Step& here = steps_[step];
    LAMINA_CHECK(!node.options.empty(), where(step), " is a single value and has no \"", here.key, "\" inside");
    LAMINA_CHECK(!here.is_index, where(step), " is not a list; remove the index after it");
    const bool variant = node.type == SchemaNode::Type::variant;
    if (variant && json.is_string()) json = Json{{"kind", json.get<std::string>()}};
    if (variant && here.key == "kind") return set_kind(node, json, step);
    const SchemaOption& option = variant ? option_of(node, json, step) : node.options[0];
    const SchemaField* field = option.find(here.key);
    if (field == nullptr) throw Error(missing_key(node, option, step));
    if (node.switches && json.is_boolean()) json = all_switches(option, json.get<bool>());
    if (!json.is_object()) json = Json::object();
    set(field->node, json[here.key], step + 1);
  }

  static Json all_switches(const SchemaOption& option, bool on) {
    Json object = Json::object();
    for (const SchemaField& field : option.fields) object[field.key] = on;
    return object;
  }

  const SchemaOption& option_of(const SchemaNode& node, const Json& json, size_t step) const {
    const bool has_kind = json.is_object() && json.contains("kind") && json["kind"].is_string();
    const std::string kind = has_kind ? json["kind"].get<std::string>() : "";
    const SchemaOption* option = node.find(kind);
    LAMINA_CHECK(option != nullptr, where(step), " is not set; set ", before(step), ".kind first, one of ",
                 kinds(node));
    return *option;
  }

  void set_kind(const SchemaNode& node, Json& json, size_t step) {
    LAMINA_CHECK(step + 1 == steps_.size() && value_.is_string(), "path \"", path_, "\": a kind is one of ",
                 kinds(node));
    const SchemaOption* option = node.find(value_.get<std::string>());
    LAMINA_CHECK(option != nullptr, path_, ": \"", value_.get<std::string>(), "\" is not known; one of ", kinds(node));
    Json changed = {{"kind", option->kind}};
    const Json old = json.is_object() ? json : Json::object();
    for (const SchemaField& field : option->fields) {
      if (old.contains(field.key) && keeps(node, old, field)) changed[field.key] = old[field.key];
    }
    json = std::move(changed);
  }

  /// Whether a value is kept when the kind changes: the old kind has the same field, and the value is not its default.
  static bool keeps(const SchemaNode& node, const Json& old, const SchemaField& field) {
    const bool has_kind = old.contains("kind") && old["kind"].is_string();
    const SchemaOption* before = has_kind ? node.find(old["kind"].get<std::string>()) : nullptr;
    const SchemaField* same = before == nullptr ? nullptr : before->find(field.key);
    if (same == nullptr || same->node.type != field.node.type || same->node.names != field.node.names) return false;
    return old[field.key].dump(-1, ' ', false, Json::error_handler_t::replace) != same->initial;
  }

  std::string missing_key(const SchemaNode& node, const SchemaOption& option, size_t step) const {
    const std::string& key = steps_[step].key;
    std::vector<std::string> known;
    for (const SchemaField& field : option.fields) known.push_back(field.key);
    const std::string kind = option.kind.empty() ? "" : " is " + option.kind + ", which";
    const std::string text = str(where(step), kind, " has no \"", key, "\"; ");
    const std::string nearest = nearest_of(key.substr(0, 64), known);
    if (!nearest.empty()) return str(text, "did you mean ", nearest, "?");
    for (const SchemaOption& other : node.options) {
      if (other.find(key) != nullptr) return str(text, "set ", before(step), ".kind=", other.kind, " first");
    }
    std::string names;
    for (const std::string& name : known) names += " " + name;
    return text + (known.empty() ? "it has no keys" : "its keys:" + names);
  }

  static std::string kinds(const SchemaNode& node) {
    std::string text;
    for (const SchemaOption& option : node.options) text += (text.empty() ? "" : ", ") + option.kind;
    return text;
  }

  std::string before(size_t step) const {
    std::string text;
    for (size_t i = 0; i < step; ++i) {
      if (steps_[i].is_index) {
        text += steps_[i].index < 0 ? "[*]" : str("[", steps_[i].index, "]");
      } else {
        text += (text.empty() ? "" : ".") + steps_[i].key;
      }
    }
    return text;
  }
  std::string where(size_t step) const { return step == 0 ? whole_ : before(step); }

  const std::string& path_;
  std::vector<Step> steps_;
  const Json& value_;
  const char* whole_;
};

}  // namespace

void set_value(Json& json, const std::string& path, const Json& value) {
  set_value(json, path, value, schema(), "an architecture");
}

void set_value(Json& json, const std::string& path, const Json& value, const SchemaNode& schema, const char* whole) {
  Setter(path, value, whole).set(schema, json, 0);
}

std::pair<std::string, Json> parse_assignment(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  LAMINA_CHECK(equals != std::string::npos && equals > 0, "\"", assignment,
               "\": expected path=value, for example position.theta=1e6 or layers[0].pattern[0].ffn.kind=plain");
  const std::string text = assignment.substr(equals + 1);
  return {assignment.substr(0, equals), try_parse_json<Json>(text).value_or(text)};
}

ArchSpec with_overrides(const ArchSpec& spec, const std::vector<std::string>& assignments) {
  if (assignments.empty()) return spec;
  Json json = spec_to_json(spec, Defaults::write);
  std::vector<Problem> problems;
  for (const std::string& assignment : assignments) {
    try {
      const auto [path, value] = parse_assignment(assignment);
      set_value(json, path, value);
    } catch (const Error& error) {
      problems.push_back({"read", "", error.what(), ""});
    }
  }
  ArchSpec changed = spec_from_json(json, problems);
  if (!problems.empty()) throw SpecError("--set", std::move(problems));
  return changed;
}

}  // namespace lamina::arch
