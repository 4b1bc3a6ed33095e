#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lamina {

// JSON parser with limits, for untrusted files. Json is nlohmann::json or nlohmann::ordered_json.

inline constexpr size_t kMaxJsonBytes = size_t{64} << 20;
inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonValues = size_t{4} << 20;

/// Parses `text`. An Error names the file, line and column ("NAME: line 3, column 5: …") if the JSON is invalid, an
/// object has a duplicate key, or the text exceeds the limits above. The depth limit prevents stack overflow in
/// recursive functions over the tree (copy, write).
template <class Json>
Json parse_json(std::string_view text, const std::string& name);

/// Like parse_json, but returns nullopt on an error. Meant for log files, whose last line may be truncated.
template <class Json>
std::optional<Json> try_parse_json(std::string_view text);

/// Parses the file at `path` with parse_json.
template <class Json>
Json read_json_file(const std::string& path);

/// Position of the byte at `offset`, written as "line 3, column 5".
std::string text_position(std::string_view text, size_t offset);

}  // namespace lamina
