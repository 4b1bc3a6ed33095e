#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lamina::text {

/// Byte-level vocabularies are files of text, so each of the 256 bytes has a printable character standing for it: a
/// byte that prints is itself, the others are U+0100 and on, in order ("Ġ" is the space, "Ċ" the newline).
std::string to_byte_alphabet(std::string_view bytes);
/// Nothing where a character of `text` stands for no byte.
std::optional<std::string> from_byte_alphabet(std::string_view text);

/// The byte that "<0x0A>" names, as vocabularies of characters list single bytes; −1 for any other text.
int byte_named(std::string_view token);
std::string name_of_byte(unsigned char byte);

}  // namespace lamina::text
