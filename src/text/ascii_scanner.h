#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lamina::text {

/// The known patterns by hand, for ASCII: most text is, and a regular expression costs more than all the rest of
/// encoding. Wherever a character beyond ASCII could matter the scanner declines, and PCRE2 decides.
class AsciiScanner {
 public:
  /// The scanner for this expression, which may be none.
  static AsciiScanner of(const std::string& regex);

  explicit operator bool() const { return scan_ != nullptr; }
  /// The length of the piece at the front of `text`, which reaches to where matching ends; 0: not decided.
  size_t operator()(std::string_view text) const { return scan_(text, digits_); }

 private:
  using Scan = size_t (*)(std::string_view, size_t);
  Scan scan_ = nullptr;
  size_t digits_ = 0;
};

}  // namespace lamina::text
