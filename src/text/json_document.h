#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lamina::text {

using nlohmann::json;

/// A tokenizer.json, with its two long lists beside the tree instead of in it.
struct JsonDocument {
  json tree;
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
};
JsonDocument parse_document(std::string_view text, const std::string& name);

/// A value of a JSON object, or `fallback` where it is missing or null; another type is an Error.
template <class T>
T value_or(const json& object, const char* key, T fallback, const std::string& name);

/// Every key of `object` must be one of these.
void check_keys(const json& object, std::initializer_list<const char*> known, const std::string& name);

}  // namespace lamina::text
