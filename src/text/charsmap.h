#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lamina::text {

/// SentencePiece's precompiled_charsmap: a double-array trie that maps byte sequences to their normalized form. The
/// bytes are a u32 with the size of the trie, the trie's u32 units, and the normalized forms, each terminated by a NUL
/// byte. This is a view, so the bytes must outlive it. Every access is checked: corrupted bytes give some text, but
/// never a crash.
class Charsmap {
 public:
  /// Throws an Error if the bytes do not contain a whole trie and its forms. `name` is used in messages.
  Charsmap(std::string_view bytes, const std::string& name);

  struct Match {
    size_t length = 0;  ///< number of matched bytes
    std::string_view form;
  };
  /// The longest or shortest entry that the text begins with.
  std::optional<Match> longest(std::string_view text) const { return search(text, false); }
  std::optional<Match> shortest(std::string_view text) const { return search(text, true); }

 private:
  std::optional<Match> search(std::string_view text, bool first) const;
  bool unit_at(size_t index, uint32_t& unit) const;

  std::string_view trie_;
  std::string_view forms_;
};

}  // namespace lamina::text
