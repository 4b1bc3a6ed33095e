#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lamina::text {

/// Byte-level vocabularies are text files, so each of the 256 bytes is represented by a printable character: printable
/// bytes by themselves, the others in order by U+0100 and up ("Ġ" is the space, "Ċ" the newline).
std::string to_byte_alphabet(std::string_view bytes);
/// Returns nullopt if a character of `text` represents no byte.
std::optional<std::string> from_byte_alphabet(std::string_view text);

/// The byte that a name like "<0x0A>" in a character-level vocabulary represents. −1 for any other text.
int byte_named(std::string_view token);
std::string name_of_byte(unsigned char byte);

}  // namespace lamina::text
