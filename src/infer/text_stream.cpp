#include "lamina/infer/text_stream.h"

#include <algorithm>
#include <cstdint>

namespace lamina::infer {
namespace {

/// Tokens kept from before, and most that one character is waited for.
constexpr size_t kBefore = 4;
constexpr size_t kLongestWait = 8;

/// The text ends inside a UTF-8 character.
bool is_cut(const std::string& text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if (byte < 0x80) return false;
    if (byte >= 0xc0) return back < (byte >= 0xf0 ? 4U : byte >= 0xe0 ? 3U : 2U);
  }
  return false;
}

}  // namespace

std::string TextStream::fresh() const {
  const std::string before = tokenizer_.decode({ids_.data(), shown_});
  const std::string all = tokenizer_.decode(ids_);
  // Where decoding together changes what was shown, the new tokens stand for themselves.
  if (!all.starts_with(before)) return tokenizer_.decode(std::span(ids_).subspan(shown_));
  return all.substr(before.size());
}

void TextStream::see_prompt(std::span<const text::TokenId> ids) {
  const auto last = ids.last(std::min(ids.size(), kBefore));
  ids_.assign(last.begin(), last.end());
  shown_ = ids_.size();
}

std::string TextStream::push(text::TokenId id) {
  ids_.push_back(id);
  const std::string text = fresh();
  if (is_cut(text) && ids_.size() - shown_ < kLongestWait) return {};
  shown_ = ids_.size();
  if (shown_ > 2 * kBefore) {
    ids_.erase(ids_.begin(), ids_.end() - kBefore);
    shown_ = kBefore;
  }
  return stops_.push(text);
}

std::string TextStream::finish() {
  std::string rest = stops_.push(fresh());
  shown_ = ids_.size();
  return rest + stops_.finish();
}

}  // namespace lamina::infer
