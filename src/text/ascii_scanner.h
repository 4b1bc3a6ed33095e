#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lamina::text {

/// Hand-written scanners for the known patterns, for ASCII text only. Most text is ASCII, and regular expressions would
/// dominate encoding time. If a non-ASCII character could matter, the scanner returns 0 and PCRE2 decides.
class AsciiScanner {
 public:
  /// The scanner for this regular expression; false in a boolean context if there is none.
  static AsciiScanner of(const std::string& regex);

  explicit operator bool() const { return scan_ != nullptr; }
  /// Length of the first piece of `text`, which must extend to the end of the subject; 0 if undecided.
  size_t operator()(std::string_view text) const { return scan_(text, digits_); }

 private:
  using Scan = size_t (*)(std::string_view, size_t);
  Scan scan_ = nullptr;
  size_t digits_ = 0;
};

}  // namespace lamina::text
