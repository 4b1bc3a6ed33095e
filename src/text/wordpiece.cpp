#include "lamina/text/wordpiece.h"

#include <algorithm>

namespace lamina::text {
namespace {

/// Number of UTF-8 characters. An invalid byte may count as one or none.
size_t characters_in(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

}  // namespace

WordPiece::WordPiece(const TokenizerSpec& spec, const std::string& name)
    : name_(name), unknown_(spec.unknown), longest_word_(static_cast<size_t>(spec.longest_word)) {
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    const VocabEntry& entry = spec.vocab[i];
    if (entry.kind == VocabEntry::Kind::ordinary && !entry.bytes.empty()) {
      entries_.add(entry.bytes, static_cast<TokenId>(i));
    }
  }
  continued_ = entries_.descend(spec.continuation);
}

void WordPiece::encode(std::string_view word, std::vector<TokenId>& ids, UnknownCharacters* unknown) const {
  const size_t from = ids.size();
  bool known = word.size() <= longest_word_ || characters_in(word) <= longest_word_;
  for (size_t begin = 0; known && begin < word.size();) {
    ByteTrie::Node node = begin == 0 ? ByteTrie::kRoot : continued_;
    TokenId longest = ByteTrie::kNoToken;
    size_t end = begin;
    for (size_t at = begin; at < word.size() && node != ByteTrie::kNone;) {
      node = entries_.child(node, static_cast<unsigned char>(word[at++]));
      if (node == ByteTrie::kNone || entries_.token(node) == ByteTrie::kNoToken) continue;
      longest = entries_.token(node);
      end = at;
    }
    known = longest != ByteTrie::kNoToken;
    if (known) ids.push_back(longest);
    begin = end;
  }
  if (known) return;
  ids.resize(from);
  append_unknown_token(word, unknown_, name_, ids, unknown);
}

}  // namespace lamina::text
