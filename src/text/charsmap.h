#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lamina::text {

/// SentencePiece's precompiled_charsmap: a double-array trie from byte sequences to their normalized form. The bytes
/// are a u32 with the size of the trie, the trie's u32 units, and the normalized forms, each ending with a NUL byte.
/// A view: the bytes must outlive it. Every access is checked, so mutated bytes give some text but never a crash.
class Charsmap {
 public:
  /// Bytes without a whole trie and its forms are an Error. `name` names the file in messages.
  Charsmap(std::string_view bytes, const std::string& name);

  struct Match {
    size_t length = 0;  ///< bytes of the text
    std::string_view form;
  };
  /// The entries that the text begins with: the longest, or the shortest.
  std::optional<Match> longest(std::string_view text) const { return search(text, false); }
  std::optional<Match> shortest(std::string_view text) const { return search(text, true); }

 private:
  std::optional<Match> search(std::string_view text, bool first) const;
  bool unit_at(size_t index, uint32_t& unit) const;

  std::string_view trie_;
  std::string_view forms_;
};

}  // namespace lamina::text
