#include "lamina/infer/engine/prompt_lookup.h"

#include <algorithm>

namespace lamina::infer {
namespace {

constexpr size_t kGram = 3;

uint64_t gram_key(std::span<const text::TokenId> gram) {
  uint64_t key = 0;
  for (const text::TokenId id : gram) key = (key ^ static_cast<uint32_t>(id)) * 0x9E3779B97F4A7C15U + (key >> 29);
  return key;
}

}  // namespace

void PromptLookup::append(std::span<const text::TokenId> tokens) {
  // Skip the n-gram at the very end: it would find itself.
  for (indexed_ = std::max(indexed_, kGram); indexed_ < tokens.size(); ++indexed_) {
    ends_[gram_key(tokens.subspan(indexed_ - kGram, kGram))] = indexed_;
  }
}

std::vector<text::TokenId> PromptLookup::draft(std::span<const text::TokenId> tokens, int64_t limit) const {
  if (limit <= 0 || tokens.size() <= kGram) return {};
  const auto gram = tokens.last(kGram);
  const auto found = ends_.find(gram_key(gram));
  if (found == ends_.end() || !std::ranges::equal(tokens.subspan(found->second - kGram, kGram), gram)) return {};
  std::vector<text::TokenId> result;
  // The draft may read its own beginning, so a repetition that is shorter than the draft continues.
  for (size_t at = found->second; static_cast<int64_t>(result.size()) < limit; ++at) {
    result.push_back(at < tokens.size() ? tokens[at] : result[at - tokens.size()]);
  }
  return result;
}

}  // namespace lamina::infer
