#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lamina::text {

/// A regular expression over UTF-8 as tokenizers' files write it (the dialect of Oniguruma and Rust's regex), run by
/// PCRE2's just-in-time compiler. What PCRE2 would read differently is translated, or an Error.
class Regex {
 public:
  struct Span {
    size_t begin = 0;
    size_t end = 0;
  };

  /// `literal`: the text itself instead of an expression. `name` stands in messages.
  Regex(const std::string& pattern, bool literal, const std::string& name);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Searches one text, which must be well-formed UTF-8 and outlive it. Not shared between threads; the Regex is.
  class Search {
   public:
    Search(const Regex& regex, std::string_view text);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;
    /// The next match at or behind `from`, which is where a character begins; an empty span at the text's end when
    /// there is none. Matches of nothing are passed over.
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
