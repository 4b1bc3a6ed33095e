#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lamina::text {

/// A regular expression over UTF-8, compiled with PCRE2's JIT. Tokenizer files use the dialects of Oniguruma and Rust's
/// regex crate. Syntax that PCRE2 would interpret differently is translated, or is an Error.
class Regex {
 public:
  struct Span {
    size_t begin = 0;
    size_t end = 0;
  };

  /// `literal`: match the pattern as plain text. `name` is the file's name in messages.
  Regex(const std::string& pattern, bool literal, const std::string& name);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Searches one text. The text must be valid UTF-8 and outlive the Search. Threads may share a Regex, but not a
  /// Search.
  class Search {
   public:
    Search(const Regex& regex, std::string_view text);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;
    /// The next match at or after `from`, which must be the start of a character. Skips empty matches. If there is
    /// none, returns an empty span at the end of the text.
    Span next(size_t from);

   private:
    const Regex& regex_;
    std::string_view text_;
    struct Data;
    std::unique_ptr<Data> data_;
  };

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace lamina::text
