#include "lamina/infer/engine/prompt_lookup.h"

#include <algorithm>
#include <cmath>

namespace lamina::infer {
namespace {

constexpr size_t kGram = 3;
/// Below this acceptance a draft costs more than it saves. Drafts then pause, and one is tried again later.
constexpr double kWorthDrafting = 0.25;
constexpr int64_t kPause = 24;

uint64_t gram_key(std::span<const text::TokenId> gram) {
  uint64_t key = 0;
  for (const text::TokenId id : gram) key = (key ^ static_cast<uint32_t>(id)) * 0x9E3779B97F4A7C15U + (key >> 29);
  return key;
}

}  // namespace

void PromptLookup::append(std::span<const text::TokenId> tokens) {
  // The n-gram at the very end is left out: it would find itself.
  for (indexed_ = std::max(indexed_, kGram); indexed_ < tokens.size(); ++indexed_) {
    ends_[gram_key(tokens.subspan(indexed_ - kGram, kGram))] = indexed_;
  }
  if (pause_ > 0) --pause_;
}

std::vector<text::TokenId> PromptLookup::draft(std::span<const text::TokenId> tokens, int64_t limit) const {
  limit = std::min(limit, length());
  if (limit <= 0 || tokens.size() <= kGram) return {};
  const auto gram = tokens.last(kGram);
  const auto found = ends_.find(gram_key(gram));
  if (found == ends_.end() || !std::ranges::equal(tokens.subspan(found->second - kGram, kGram), gram)) return {};
  std::vector<text::TokenId> result;
  // The draft may run into itself: a repetition shorter than the draft is continued.
  for (size_t at = found->second; static_cast<int64_t>(result.size()) < limit; ++at) {
    result.push_back(at < tokens.size() ? tokens[at] : result[at - tokens.size()]);
  }
  return result;
}

void PromptLookup::measure(int64_t drafted, int64_t accepted) {
  if (drafted == 0) return;
  // Tokens after the first wrong one say nothing, so there were accepted + 1 trials unless all were right.
  const int64_t trials = std::min(drafted, accepted + 1);
  for (int64_t i = 0; i < trials; ++i) acceptance_ += 0.1 * ((i < accepted ? 1.0 : 0.0) - acceptance_);
  if (acceptance_ < kWorthDrafting) {
    pause_ = kPause;
    acceptance_ = kWorthDrafting + 0.05;  // one draft decides after the pause
  }
}

int64_t PromptLookup::length() const {
  if (pause_ > 0) return 0;
  // The expected number of right tokens in a row, rounded up.
  const double run = acceptance_ / std::max(1e-3, 1 - acceptance_);
  return std::clamp<int64_t>(std::llround(std::ceil(run)), 1, max_draft_);
}

}  // namespace lamina::infer
