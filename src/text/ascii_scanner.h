#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lamina::text {

/// Hand-written scanners for the well-known split patterns, for ASCII text only. Most text is ASCII, and regular
/// expressions would dominate the encoding time. If a non-ASCII character could matter, the scanner returns 0 and PCRE2
/// takes over.
class AsciiScanner {
 public:
  /// The scanner for this regular expression. Converts to false if there is none.
  static AsciiScanner of(const std::string& regex);

  explicit operator bool() const { return scan_ != nullptr; }
  /// Length of the first piece of `text`; 0 if undecided. `text` must extend to the end of the subject.
  size_t operator()(std::string_view text) const { return scan_(text, digits_); }

 private:
  using Scan = size_t (*)(std::string_view, size_t);
  Scan scan_ = nullptr;
  size_t digits_ = 0;
};

}  // namespace lamina::text
