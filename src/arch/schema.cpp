#include "lamina/arch/schema.h"

#include "lamina/arch/value_schema.h"

namespace lamina::arch {

const SchemaField* SchemaOption::find(std::string_view key) const {
  for (const SchemaField& field : fields) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

const SchemaOption* SchemaNode::find(std::string_view kind) const {
  for (const SchemaOption& option : options) {
    if (option.kind == kind) return &option;
  }
  return nullptr;
}

const SchemaNode& schema() {
  static const SchemaNode whole = describe<ArchSpec>();
  return whole;
}

}  // namespace lamina::arch
