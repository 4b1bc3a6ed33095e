#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/arch/problem.h"
#include "lamina/arch/spec.h"
#include "lamina/base/json.h"

namespace lamina::arch {

using Json = nlohmann::ordered_json;

/// Reads a spec from JSON. Appends every problem to `problems` and skips the bad value.
ArchSpec spec_from_json(const Json& json, std::vector<Problem>& problems);

enum class Defaults { omit, write };
/// Writes a spec with its keys in canonical order. `omit` leaves out values that equal their default. Both modes leave
/// out unset options.
Json spec_to_json(const ArchSpec& spec, Defaults defaults);

/// spec_from_json() and spec_to_json() for text. Throws a SpecError that lists every problem.
ArchSpec read_spec(std::string_view text, const std::string& name);
std::string write_spec(const ArchSpec& spec, Defaults defaults = Defaults::omit);

}  // namespace lamina::arch
