#include "lamina/text/stream_decoder.h"

#include <array>
#include <utility>

#include "lamina/text/utf8.h"

namespace lamina::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool special) : tokenizer_(tokenizer), special_(special) {}

void StreamDecoder::follow(TokenId id) {
  if (id < tokenizer_.vocab_size()) last_ = id;
}

std::string StreamDecoder::push(TokenId id) {
  if (id >= tokenizer_.vocab_size()) {
    std::string text = std::exchange(held_, {});
    if (special_) text.append("<").append(std::to_string(id)).append(">");
    return text;
  }
  // The text of a token depends at most on the previous token: that decides whether a leading space is stripped.
  const std::array<TokenId, 2> pair = {last_.value_or(id), id};
  const size_t before = last_ ? tokenizer_.decode({pair.data(), 1}).size() : 0;
  const std::string bytes = last_ ? tokenizer_.decode(pair) : tokenizer_.decode({pair.data(), 1});
  last_ = id;
  if (special_ || !tokenizer_.is_special(id)) held_.append(bytes, before);
  const size_t certain = held_.size() - incomplete_suffix(held_);
  std::string text = held_.substr(0, certain);
  held_.erase(0, certain);
  return text;
}

std::string StreamDecoder::finish() {
  last_.reset();
  return std::exchange(held_, {});
}

}  // namespace lamina::text
