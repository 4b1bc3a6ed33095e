#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lamina::text {

using nlohmann::json;

/// A JSON object, or an Error. `name` stands in messages.
json parse_object(std::string_view text, const std::string& name);

/// A value of a JSON object, or `fallback` where it is missing or null; another type is an Error.
template <class T>
T value_or(const json& object, const char* key, T fallback, const std::string& name);

/// Every key of `object` must be one of these.
void check_keys(const json& object, std::initializer_list<const char*> known, const std::string& name);

}  // namespace lamina::text
