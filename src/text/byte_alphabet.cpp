#include "lamina/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 0x144> byte{};  // indexed by character; −1: stands for no byte

  constexpr Alphabet() {
    for (int16_t& entry : byte) entry = -1;
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = prints ? b : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, kAlphabet.character[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    if (point.length == 0 || point.value >= kAlphabet.byte.size() || kAlphabet.byte[point.value] < 0) return {};
    bytes += static_cast<char>(kAlphabet.byte[point.value]);
    text.remove_prefix(point.length);
  }
  return bytes;
}

std::string name_of_byte(unsigned char byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

int byte_named(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  const int high = digit(token[3]);
  const int low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace lamina::text
