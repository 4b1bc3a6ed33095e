#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lamina::arch {

struct SchemaField;

/// One choice of a variant; a struct is a node with a single choice without kind.
struct SchemaOption {
  std::string kind;
  std::string doc;
  std::vector<SchemaField> fields;
  const SchemaField* find(std::string_view key) const;
};

/// The type of a value in an architecture file, made from the structs' visit_fields.
struct SchemaNode {
  enum class Type { boolean, integer, number, text, choice, structure, variant, list };
  Type type = Type::text;
  std::string name;                   ///< of a structure or variant, for people
  bool switches = false;              ///< a structure of switches: true or false stand for all
  std::vector<std::string> names;     ///< of a choice
  std::vector<SchemaOption> options;  ///< of a structure (one) or a variant
  std::vector<SchemaNode> element;    ///< of a list (one)
  const SchemaOption* find(std::string_view kind) const;
};

struct SchemaField {
  std::string key;
  std::string doc;
  std::string initial;  ///< what is meant when the key is missing, as JSON; empty when unset
  SchemaNode node;
};

/// The whole file's.
const SchemaNode& schema();

/// A section for a file's keys and one for each of its parts, with every key's type, default and meaning.
std::string fields_markdown(const SchemaNode& whole);

/// docs/architecture-file.md: every key with its type, default and meaning, and every rule.
std::string schema_markdown();

}  // namespace lamina::arch
