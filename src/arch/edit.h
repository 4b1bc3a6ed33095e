#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lamina/arch/json.h"
#include "lamina/arch/schema.h"

namespace lamina::arch {

/// Changes one value of a spec's full JSON (Defaults::write). Paths: `position.theta`, `layers[0].pattern[1].ffn.d_ff`,
/// `layers[*].pattern[*].mixer.n_heads` for all. Setting a `kind` switches the variant and keeps the keys that the new
/// kind has too. null unsets an option. A path that leads nowhere is an error that names the nearest key.
void set_value(Json& json, const std::string& path, const Json& value);
/// The same for any file that a schema describes; `whole` is what messages call it ("a recipe").
void set_value(Json& json, const std::string& path, const Json& value, const SchemaNode& schema, const char* whole);

/// "path=value", the value as JSON, or a text where it is none.
std::pair<std::string, Json> parse_assignment(const std::string& assignment);

/// The spec with "path=value" applied in order. Throws SpecError with every problem.
ArchSpec with_overrides(const ArchSpec& spec, const std::vector<std::string>& assignments);

struct Difference {
  std::string path;
  std::string a;  ///< as JSON; empty where it is not there
  std::string b;
};
/// Every value that differs, by path. Resolve both first to compare what they mean rather than what they say.
std::vector<Difference> diff(const ArchSpec& a, const ArchSpec& b);

}  // namespace lamina::arch
