#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/arch/problem.h"
#include "lamina/arch/spec.h"

namespace lamina::arch {

using Json = nlohmann::ordered_json;

/// Text to JSON with guards: at most 4 MiB, 64 levels, no key twice in an object. `name` goes into the message.
Json parse_json(std::string_view text, const std::string& name);

/// The spec a JSON value says; what is wrong with it is appended to `problems`, all of it, and skipped.
ArchSpec spec_from_json(const Json& json, std::vector<Problem>& problems);

enum class Defaults { omit, write };
/// Canonical order. `omit` leaves out what a reader would fill in itself; unset options are left out in both.
Json spec_to_json(const ArchSpec& spec, Defaults defaults);

/// As above on text. Throws SpecError with every problem.
ArchSpec read_spec(std::string_view text, const std::string& name);
std::string write_spec(const ArchSpec& spec, Defaults defaults = Defaults::omit);

}  // namespace lamina::arch
