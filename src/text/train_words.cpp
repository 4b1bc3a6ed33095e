#include "lamina/text/train_words.h"

#include <unordered_map>

#include "lamina/text/normalize.h"
#include "lamina/text/split.h"
#include "lamina/text/utf8.h"

namespace lamina::text {

std::vector<CountedWord> count_pieces(const std::vector<std::string_view>& corpora, const TokenizerSpec& spec) {
  const Normalizer normalizer(spec.normalizers, "training");
  const Splitter splitter(spec.splits, "training");
  std::unordered_map<std::string, size_t> index;
  std::vector<CountedWord> words;
  std::vector<std::string_view> pieces;
  for (std::string_view corpus : corpora) {
    while (!corpus.empty()) {
      const size_t end = corpus.find('\n');
      const std::string_view line = corpus.substr(0, end);
      corpus.remove_prefix(end == std::string_view::npos ? corpus.size() : end + 1);
      std::string text = normalizer(line);
      const bool segment = spec.prefix.when == Prefix::When::every_segment || spec.prefix.when == Prefix::When::first;
      if (!text.empty() && segment && !text.starts_with(spec.prefix.text)) text = spec.prefix.text + text;
      for (Splitter::Pieces stream(splitter, text); stream.next(pieces);) {
        for (const std::string_view piece : pieces) {
          if (valid_prefix(piece) != piece.size()) continue;
          const auto [found, added] = index.emplace(std::string(piece), words.size());
          if (added) words.emplace_back(found->first, 0);
          ++words[found->second].second;
        }
      }
    }
  }
  return words;
}

}  // namespace lamina::text
