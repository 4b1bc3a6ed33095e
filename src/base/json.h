#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lamina {

// The one reader of JSON text, for files that others wrote. Json is nlohmann::json or nlohmann::ordered_json.

inline constexpr size_t kMaxJsonBytes = size_t{64} << 20;
inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonValues = size_t{4} << 20;

/// Parses `text`. Invalid JSON, a repeated key in one object, and text beyond the limits above are an Error. It names
/// the place: "NAME: line 3, column 5: …". The depth limit keeps recursion over the tree (copying, writing) within the
/// stack.
template <class Json>
Json parse_json(std::string_view text, const std::string& name);

/// parse_json with nullopt instead of an Error, for lines of a log, of which the last may be cut off.
template <class Json>
std::optional<Json> try_parse_json(std::string_view text);

/// parse_json of the file at `path`.
template <class Json>
Json read_json_file(const std::string& path);

/// "line 3, column 5" of the byte at `offset`.
std::string text_position(std::string_view text, size_t offset);

}  // namespace lamina
