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

/// Reads a spec from JSON; appends every problem to `problems` and skips the bad value.
ArchSpec spec_from_json(const Json& json, std::vector<Problem>& problems);

enum class Defaults { omit, write };
/// Keys in canonical order. `omit` leaves out values equal to their default; both leave out unset options.
Json spec_to_json(const ArchSpec& spec, Defaults defaults);

/// spec_from_json and spec_to_json on text. Throws SpecError with every problem.
ArchSpec read_spec(std::string_view text, const std::string& name);
std::string write_spec(const ArchSpec& spec, Defaults defaults = Defaults::omit);

}  // namespace lamina::arch
