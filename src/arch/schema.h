#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lamina::arch {

struct SchemaField;

/// One alternative of a variant. A struct has a single alternative, without a kind.
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
  bool switches = false;              ///< a structure of booleans: a single true or false sets all
  std::vector<std::string> names;     ///< values of a choice
  std::vector<SchemaOption> options;  ///< the alternatives of a variant; a structure has one
  std::vector<SchemaNode> element;    ///< type of a list's elements (one)
  const SchemaOption* find(std::string_view kind) const;
};

/// A key of a structure: its description, default and type.
struct SchemaField {
  std::string key;
  std::string doc;
  std::string initial;  ///< default if the key is missing, as JSON; empty if unset
  SchemaNode node;
};

/// The schema of the whole file.
const SchemaNode& schema();

/// Markdown sections that describe a file's keys and each of its parts: every key's type, default and meaning.
std::string fields_markdown(const SchemaNode& whole);

/// The text of docs/reference/architecture-file.md: every key with its type, default and meaning, and all rules.
std::string schema_markdown();

}  // namespace lamina::arch
