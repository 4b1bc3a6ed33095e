#include <deque>
#include <map>

#include "lamina/arch/rules.h"
#include "lamina/arch/schema.h"

namespace lamina::arch {
namespace {

constexpr const char* kIntroduction = R"(# The architecture file

Generated from the structs in `src/arch` by `lamina presets schema`; a test keeps it up to date.

An architecture is a JSON file. A value with several kinds is an object with a `kind` and the keys of that kind,
`{"kind": "rope", "theta": 500000}`, or just the kind to use its defaults, `"rope"`. Missing keys have the default shown
here; if none is shown, `resolve()` derives it as described. An unknown key is an error.

```json
{
  "schema": 1, "vocab_size": 50257, "d_model": 768, "context": 1024,
  "position": "learned", "norm": "layer",
  "layers": [{"repeat": 12, "pattern": [
    {"mixer": {"kind": "attention", "n_heads": 12, "bias": true},
     "ffn": {"kind": "plain", "activation": "gelu_tanh", "bias": true}}]}],
  "head": {"tied": true}
}
```

A file may also build on a preset: `{"base": "llama-7b", "about": "...", "set": {"position.theta": 1e6}}`. Paths are
written as in `--set` and in messages: `layers[0].pattern[1].ffn.d_ff`, with `[*]` for all. Setting a `kind` switches
the variant and keeps the keys that the new kind also has.
)";

/// Escapes |, which would end a table cell, also within backticks.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

/// Writes sections in file order. A structure that occurs again refers to its first description.
class Markdown {
 public:
  /// Writes everything except the rules.
  std::string write(const SchemaNode& whole) {
    waiting_.push_back({"The file", &whole});
    while (!waiting_.empty()) {
      const auto [title, node] = waiting_.front();
      waiting_.pop_front();
      section(title, *node);
    }
    return text_;
  }

 private:
  void section(const std::string& title, const SchemaNode& node) {
    text_ += "\n## " + title + "\n";
    for (const SchemaOption& option : node.options) {
      if (option.kind.empty()) {
        fields(option);
        continue;
      }
      const std::string id = signature(option);
      text_ += "\n**" + option.kind + "**: " + option.doc + ".";
      if (const auto found = described_.find(id); found != described_.end() && !option.fields.empty()) {
        text_ += " Keys as under *" + found->second + "*.";
      }
      text_ += "\n";
      if (described_.emplace(id, title).second) fields(option);
    }
  }

  void fields(const SchemaOption& option) {
    if (option.fields.empty()) return;
    text_ += "\n| key | value | default | meaning |\n|---|---|---|---|\n";
    for (const SchemaField& field : option.fields) {
      const bool none = field.initial.empty() || field.doc.ends_with("required");
      const std::string initial = none ? "" : "`" + cell(field.initial) + "`";
      text_ += "| `" + field.key + "` | " + value(field.key, field.node) + " | " + initial + " | " + cell(field.doc) +
               " |\n";
    }
  }

  std::string value(const std::string& key, const SchemaNode& node) {
    using Type = SchemaNode::Type;
    switch (node.type) {
      case Type::boolean: return "true, false";
      case Type::integer: return "whole number";
      case Type::number: return "number";
      case Type::text: return "text";
      case Type::list: return "list of " + value(key, node.element[0]);
      case Type::choice: break;
      case Type::structure:
      case Type::variant: return reference(key, node);
    }
    std::string names;
    for (const std::string& name : node.names) names += (names.empty() ? "`" : ", `") + name + "`";
    return names;
  }

  std::string reference(const std::string& key, const SchemaNode& node) {
    std::string id;
    for (const SchemaOption& option : node.options) id += signature(option);
    const auto [found, fresh] = sections_.emplace(id, title_for(key));
    if (fresh) waiting_.push_back({found->second, &node});
    return "*" + found->second + "*";
  }

  /// Gives sections with the same key different titles, for example `position` of the model and of a mixer.
  std::string title_for(const std::string& key) {
    const int before = titles_[key]++;
    return before == 0 ? key : key + " (of a mixer)";
  }

  static std::string signature(const SchemaOption& option) {
    std::string id = option.kind + "|" + option.doc;
    for (const SchemaField& field : option.fields) id += "|" + field.key + field.initial + field.doc;
    return id + ";";
  }

  struct Waiting {
    std::string title;
    const SchemaNode* node;
  };
  std::deque<Waiting> waiting_;
  std::map<std::string, std::string> sections_;
  std::map<std::string, std::string> described_;
  std::map<std::string, int> titles_;
  std::string text_;
};

std::string rule_table() {
  std::string text =
      "\n## Rules\n\nAll violations are reported at once.\n\n| rule | what must hold | hint |\n|---|---|---|\n";
  for (const Rule& rule : rules()) {
    text += "| `" + std::string(rule.id) + "` | " + std::string(rule.holds) + " | " + std::string(rule.hint) + " |\n";
  }
  return text;
}

}  // namespace

std::string fields_markdown(const SchemaNode& whole) { return Markdown().write(whole); }

std::string schema_markdown() { return kIntroduction + fields_markdown(schema()) + rule_table(); }

}  // namespace lamina::arch
