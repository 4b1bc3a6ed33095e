#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lamina::arch {

struct SchemaField;

/// One alternative of a variant; a struct is a node with a single alternative without kind.
struct SchemaOption {
  std::string kind;
  std::string doc;
  std::vector<SchemaField> fields;
  const SchemaField* find(std::string_view key) const;
};

/// The type of a value in an architecture file, derived from visit_fields.
struct SchemaNode {
  enum class Type { boolean, integer, number, text, choice, structure, variant, list };
  Type type = Type::text;
  std::string name;                   ///< display name of a structure or variant
  bool switches = false;              ///< a structure of switches: true or false sets all
  std::vector<std::string> names;     ///< values of a choice
  std::vector<SchemaOption> options;  ///< of a structure (one) or a variant
  std::vector<SchemaNode> element;    ///< type of a list's elements (one)
  const SchemaOption* find(std::string_view kind) const;
};

struct SchemaField {
  std::string key;
  std::string doc;
  std::string initial;  ///< default if the key is missing, as JSON; empty if unset
  SchemaNode node;
};

/// The schema of the whole file.
const SchemaNode& schema();

/// Markdown sections for a file's keys and each of its parts, with every key's type, default and meaning.
std::string fields_markdown(const SchemaNode& whole);

/// The text of docs/reference/architecture-file.md: every key with its type, default and meaning, and every rule.
std::string schema_markdown();

}  // namespace lamina::arch
