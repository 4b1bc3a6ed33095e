#include "lamina/text/scored_merges.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "lamina/text/vocabulary.h"

namespace lamina::text {

void add_merges_by_rank(TokenizerSpec& spec, const std::vector<int32_t>& ranks) {
  Vocabulary ids(spec.vocab.size());
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    if (spec.vocab[i].kind == VocabEntry::Kind::ordinary) ids.add(spec.vocab[i].bytes, static_cast<TokenId>(i));
  }
  const bool characters = spec.symbols == Symbols::characters;
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    if (spec.vocab[i].kind != VocabEntry::Kind::ordinary) continue;
    const std::string_view bytes = spec.vocab[i].bytes;
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      if (characters && (static_cast<unsigned char>(bytes[cut]) & 0xC0) == 0x80) continue;
      const TokenId left = ids.find(bytes.substr(0, cut));
      const TokenId right = left == Vocabulary::kNone ? left : ids.find(bytes.substr(cut));
      if (right != Vocabulary::kNone) spec.merges.push_back({left, right, static_cast<TokenId>(i), ranks[i]});
    }
  }
  std::ranges::stable_sort(spec.merges, {}, &MergeRule::rank);
}

std::vector<int32_t> ranks_of_scores(const std::vector<float>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<int32_t> ranks(scores.size());
  int32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] < scores[order[i - 1]]) ++rank;  // equal scores share a rank
    ranks[order[i]] = rank;
  }
  return ranks;
}

}  // namespace lamina::text
