#include "lamina/text/grammar/vocabulary_index.h"

#include <algorithm>
#include <utility>

#include "lamina/base/error.h"

namespace lamina::text {
namespace {

constexpr size_t kLongestToken = 4096;  // in bytes; longer entries are never allowed

std::vector<std::string> token_bytes(const Tokenizer& tokenizer, int64_t size) {
  const int64_t listed = tokenizer.vocab_size();
  LAMINA_CHECK(size == 0 || size >= listed, "the model has ", size, " logits, its tokenizer ", listed,
               " tokens; use the model's own tokenizer");
  std::vector<std::string> bytes(static_cast<size_t>(std::max(size, listed)));
  for (TokenId id = 0; id < listed; ++id) {
    if (!tokenizer.is_special(id)) bytes[static_cast<size_t>(id)] = tokenizer.token(id);
  }
  return bytes;
}

std::vector<TokenId> or_eos(std::vector<TokenId> end_tokens, const Tokenizer& tokenizer) {
  if (end_tokens.empty() && tokenizer.eos()) end_tokens.push_back(*tokenizer.eos());
  return end_tokens;
}

}  // namespace

VocabularyIndex::VocabularyIndex(const Tokenizer& tokenizer, std::vector<TokenId> end_tokens, int64_t size)
    : VocabularyIndex(token_bytes(tokenizer, size), or_eos(std::move(end_tokens), tokenizer)) {}

VocabularyIndex::VocabularyIndex(std::vector<std::string> bytes, std::vector<TokenId> end_tokens)
    : bytes_(std::move(bytes)), end_tokens_(std::move(end_tokens)) {
  for (const TokenId id : end_tokens_) {
    LAMINA_CHECK(id >= 0 && id < size(), "the end token ", id, " is not in the vocabulary of ", size(), " tokens");
    bytes_[static_cast<size_t>(id)].clear();
  }
  build();
}

bool VocabularyIndex::is_end(TokenId id) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), id) != end_tokens_.end();
}

void VocabularyIndex::build() {
  std::vector<TokenId> sorted;
  for (TokenId id = 0; id < size(); ++id) {
    if (!bytes(id).empty() && bytes(id).size() <= kLongestToken) sorted.push_back(id);
  }
  std::sort(sorted.begin(), sorted.end(), [&](TokenId a, TokenId b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  nodes_.push_back({});
  std::vector<uint32_t> path = {0};  // nodes of the previous token
  std::string_view last;
  const auto close = [&](size_t depth) {
    while (path.size() > depth + 1) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
  };
  for (const TokenId id : sorted) {
    const std::string_view text = bytes(id);
    const auto differ = std::mismatch(last.begin(), last.end(), text.begin(), text.end()).second;
    close(static_cast<size_t>(differ - text.begin()));
    for (size_t depth = path.size() - 1; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint32_t>(tokens_.size()), static_cast<uint16_t>(depth + 1),
                        static_cast<uint8_t>(text[depth])});
    }
    tokens_.push_back(id);
    last = text;
  }
  close(0);
  nodes_[0].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({static_cast<uint32_t>(nodes_.size()), static_cast<uint32_t>(tokens_.size()), 0, 0});
}

uint32_t VocabularyIndex::find(std::string_view bytes) const {
  uint32_t at = 0;
  for (const char c : bytes) {
    uint32_t child = at + 1;
    while (child < nodes_[at].end && nodes_[child].byte != static_cast<uint8_t>(c)) child = nodes_[child].end;
    if (child >= nodes_[at].end) return 0;
    at = child;
  }
  return at;
}

}  // namespace lamina::text
