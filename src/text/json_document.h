#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lamina::text {

using nlohmann::json;

/// Parses a JSON object. Anything else is an Error. `name` is the file's name in messages.
json parse_object(std::string_view text, const std::string& name);

/// A value of a JSON object, or `fallback` if it is missing or null. A value of another type is an Error.
template <class T>
T value_or(const json& object, const char* key, T fallback, const std::string& name);

/// Throws an Error if `object` has a key that is not in `known`.
void check_keys(const json& object, std::initializer_list<const char*> known, const std::string& name);

}  // namespace lamina::text
