#include "lamina/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "lamina/text/unicode_steps.h"
#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

size_t skip_spaces(std::string_view text, size_t at) {
  for (;;) {
    const CodePoint point = first_code_point(text.substr(at, 4));
    if (point.length == 0 || !is_white_space(point.value)) return at;
    at += point.length;
  }
}

/// The start of the white space that ends at `at`; never before `from`.
size_t spaces_before(std::string_view text, size_t from, size_t at) {
  for (size_t begin = at;;) {
    size_t length = 0;
    for (size_t n = 1; n <= 3 && n <= begin - from && length == 0; ++n) {
      const CodePoint point = first_code_point(text.substr(begin - n, n));
      if (point.length == n && is_white_space(point.value)) length = n;
    }
    if (length == 0) return begin;
    begin -= length;
  }
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), index_(tokens_.size()) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].pattern.empty() ? tokens_[i].content : tokens_[i].pattern;
    if (!index_.add(content, static_cast<TokenId>(i))) continue;
    lengths_[static_cast<unsigned char>(content[0])].push_back(content.size());
  }
  for (std::vector<size_t>& lengths : lengths_) {
    std::ranges::sort(lengths, std::greater<>());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  }
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    for (const size_t length : lengths_[static_cast<unsigned char>(text[at])]) {
      if (length > text.size() - at) continue;
      const TokenId index = index_.find(text.substr(at, length));
      if (index == Vocabulary::kNone) continue;
      const AddedToken& token = tokens_[static_cast<size_t>(index)];
      return {&token, token.lstrip ? spaces_before(text, from, at) : at,
              token.rstrip ? skip_spaces(text, at + length) : at + length};
    }
  }
  return {nullptr, text.size(), text.size()};
}

}  // namespace lamina::text
