#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lamina/arch/json.h"
#include "lamina/arch/schema.h"

namespace lamina::arch {

/// Sets one value in a spec's full JSON (Defaults::write). Example paths: `position.theta`,
/// `layers[0].pattern[1].ffn.d_ff`, or `layers[*].pattern[*].mixer.n_heads` for all blocks. Setting a `kind` switches
/// the variant, and keeps the keys that the new kind also has. null unsets an option. For an unknown path the Error
/// suggests the nearest key.
void set_value(Json& json, const std::string& path, const Json& value);
/// set_value() for any file with a schema. `whole` names the file in messages, for example "a recipe".
void set_value(Json& json, const std::string& path, const Json& value, const SchemaNode& schema, const char* whole);

/// Parses "path=value". The value is parsed as JSON, or taken as plain text if it is not valid JSON.
std::pair<std::string, Json> parse_assignment(const std::string& assignment);

/// Applies "path=value" assignments to the spec, in order. Throws a SpecError that lists every problem.
ArchSpec with_overrides(const ArchSpec& spec, const std::vector<std::string>& assignments);

/// One value in which two architectures differ.
struct Difference {
  std::string path;  ///< path as for --set
  std::string a;     ///< value in the first architecture, as JSON; empty if missing
  std::string b;     ///< value in the second architecture, as JSON; empty if missing
};
/// All values that differ, sorted by path. Resolve both specs first to compare effective values instead of files.
std::vector<Difference> diff(const ArchSpec& a, const ArchSpec& b);

}  // namespace lamina::arch
