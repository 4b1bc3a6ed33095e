#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lamina/arch/json.h"
#include "lamina/arch/schema.h"

namespace lamina::arch {

/// Sets one value in a spec's full JSON (Defaults::write). Paths: `position.theta`, `layers[0].pattern[1].ffn.d_ff`, or
/// `layers[*].pattern[*].mixer.n_heads` for all. Setting a `kind` switches the variant and keeps the keys that the new
/// kind also has. null unsets an option. An unknown path is an error that names the nearest key.
void set_value(Json& json, const std::string& path, const Json& value);
/// set_value for any file with a schema; `whole` names it in messages ("a recipe").
void set_value(Json& json, const std::string& path, const Json& value, const SchemaNode& schema, const char* whole);

/// Parses "path=value"; the value is JSON, or plain text if it is not valid JSON.
std::pair<std::string, Json> parse_assignment(const std::string& assignment);

/// The spec with the "path=value" assignments applied in order. Throws SpecError with every problem.
ArchSpec with_overrides(const ArchSpec& spec, const std::vector<std::string>& assignments);

/// One value in which two architectures differ.
struct Difference {
  std::string path;  ///< as in --set
  std::string a;     ///< as JSON; empty if missing
  std::string b;     ///< like a
};
/// All values that differ, by path. Resolve both specs first to compare effective values instead of the files.
std::vector<Difference> diff(const ArchSpec& a, const ArchSpec& b);

}  // namespace lamina::arch
