#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lamina::text {

/// Decodes base64, with or without padding. Empty if a character is not a base64 digit.
std::optional<std::string> from_base64(std::string_view text);
/// Encodes with padding.
std::string to_base64(std::string_view bytes);

}  // namespace lamina::text
