#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lamina::text::grammar {

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

/// A set of Unicode scalar values (no surrogates), as sorted, disjoint, non-adjacent ranges.
class CodeSet {
 public:
  using Range = std::pair<char32_t, char32_t>;  // both ends are included

  CodeSet() = default;
  CodeSet(char32_t first, char32_t last) { add(first, last); }
  static CodeSet all() { return {0, kLastCodePoint}; }

  void add(char32_t first, char32_t last);
  void add(char32_t value) { add(value, value); }
  void add(const CodeSet& other);
  CodeSet complement() const;
  CodeSet intersect(const CodeSet& other) const;
  bool contains(char32_t value) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CodeSet&) const = default;

 private:
  void insert(char32_t first, char32_t last);
  std::vector<Range> ranges_;
};

/// The code points of a Unicode general category ("L", "Lu", "Nd", …). Empty if there is no such category.
std::optional<CodeSet> unicode_category(std::string_view name);

/// One to four byte ranges. Every sequence with one byte from each range is the UTF-8 form of a code point.
struct Utf8Sequence {
  std::array<std::pair<uint8_t, uint8_t>, 4> bytes{};
  int length = 0;
};
/// Appends sequences that cover the code points `first` … `last`, which must not include surrogates.
void append_utf8_sequences(char32_t first, char32_t last, std::vector<Utf8Sequence>& sequences);

}  // namespace lamina::text::grammar
