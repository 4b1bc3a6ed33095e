#include "lamina/infer/text_stream.h"

namespace lamina::infer {

void TextStream::see_prompt(std::span<const text::TokenId> ids) {
  if (!ids.empty()) decoder_.follow(ids.back());
}

std::string TextStream::push(text::TokenId id) { return stops_.push(decoder_.push(id)); }

std::string TextStream::finish() {
  std::string rest = stops_.push(decoder_.finish());
  return rest + stops_.finish();
}

}  // namespace lamina::infer
