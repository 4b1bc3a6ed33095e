#include "lamina/text/train_bpe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <queue>
#include <unordered_map>

#include "lamina/base/error.h"
#include "lamina/text/byte_alphabet.h"
#include "lamina/text/patterns.h"
#include "lamina/text/spec_build.h"
#include "lamina/text/split.h"

namespace lamina::text {
namespace {

/// A distinct piece of the text, as a sequence of its current tokens.
struct Word {
  std::vector<TokenId> symbols;
  int64_t count = 0;
};

using Pair = uint64_t;
Pair pair_of(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

/// Length of the next chunk of text to split. It ends at a line break before a letter or digit, where every pattern
/// splits.
size_t chunk_of(std::string_view text) {
  for (size_t at = size_t{1} << 20; (at = text.find('\n', at)) != std::string_view::npos; ++at) {
    const auto next = static_cast<unsigned char>(at + 1 < text.size() ? text[at + 1] : ' ');
    if (next < 0x80 && std::isalnum(next) != 0) return at + 1;
  }
  return text.size();
}

/// Counts the distinct pieces, in order of first occurrence.
std::vector<Word> count_words(const std::vector<std::string_view>& corpora, const Splitter& splitter,
                              const std::array<TokenId, 256>& first_ids) {
  std::unordered_map<std::string_view, size_t> index;
  std::vector<Word> words;
  std::vector<std::string_view> pieces;
  for (std::string_view corpus : corpora) {
    while (!corpus.empty()) {
      const size_t length = chunk_of(corpus);
      Splitter::Pieces stream(splitter, corpus.substr(0, length));
      corpus.remove_prefix(length);
      while (stream.next(pieces)) {
        for (const std::string_view piece : pieces) {
          const auto [found, added] = index.emplace(piece, words.size());
          if (added) {
            words.emplace_back();
            for (const char byte : piece) words.back().symbols.push_back(first_ids[static_cast<unsigned char>(byte)]);
          }
          ++words[found->second].count;
        }
      }
    }
  }
  return words;
}

/// Counts of all pairs of neighbors, updated during merging. A merge visits only the words that contain the pair.
class PairCounts {
 public:
  explicit PairCounts(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t w = 0; w < words_.size(); ++w) {
      const std::vector<TokenId>& symbols = words_[w].symbols;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) add(pair_of(symbols[i], symbols[i + 1]), words_[w].count, w);
    }
    for (const auto& [pair, info] : pairs_) queue_.push({info.count, pair});
  }

  struct Best {
    int64_t count = 0;
    Pair pair = 0;
    bool operator<(const Best& other) const {  // std::priority_queue returns the largest first
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  /// The most frequent pair. Its count is 0 if there is none.
  Best next() {
    while (!queue_.empty()) {
      const Best best = queue_.top();
      const auto found = pairs_.find(best.pair);
      const int64_t now = found == pairs_.end() ? 0 : found->second.count;
      if (now == best.count && now > 0) return best;
      queue_.pop();  // outdated: the count has changed
      if (now > 0 && now < best.count) queue_.push({now, best.pair});
    }
    return {};
  }

  void merge(Pair pair, TokenId result) {
    const auto left = static_cast<TokenId>(pair >> 32);
    const auto right = static_cast<TokenId>(pair & 0xFFFFFFFFU);
    const std::vector<uint32_t> holders = std::move(pairs_[pair].words);
    grown_.clear();
    for (const uint32_t w : holders) merge_in(w, left, right, result);
    pairs_.erase(pair);
    std::ranges::sort(grown_);
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair one : grown_) {
      if (const auto found = pairs_.find(one); found != pairs_.end()) queue_.push({found->second.count, one});
    }
  }

 private:
  struct Info {
    int64_t count = 0;
    std::vector<uint32_t> words;  // words that contain the pair or contained it; no consecutive duplicates
  };

  void add(Pair pair, int64_t count, size_t word) {
    Info& info = pairs_[pair];
    info.count += count;
    const auto w = static_cast<uint32_t>(word);
    if (info.words.empty() || info.words.back() != w) info.words.push_back(w);
  }

  void merge_in(uint32_t w, TokenId left, TokenId right, TokenId result) {
    std::vector<TokenId>& symbols = words_[w].symbols;
    const int64_t count = words_[w].count;
    size_t out = 0;
    for (size_t i = 0; i < symbols.size(); ++i, ++out) {
      if (symbols[i] != left || i + 1 >= symbols.size() || symbols[i + 1] != right) {
        symbols[out] = symbols[i];
        continue;
      }
      // symbols[0 … out) is final. The previous neighbor may be a token that this merge has just created.
      if (out > 0) {
        remove(pair_of(symbols[out - 1], left), count);
        gain(pair_of(symbols[out - 1], result), count, w);
      }
      if (i + 2 < symbols.size()) {
        remove(pair_of(right, symbols[i + 2]), count);
        gain(pair_of(result, symbols[i + 2]), count, w);
      }
      symbols[out] = result;
      ++i;
    }
    symbols.resize(out);
  }
  void remove(Pair pair, int64_t count) {
    const auto found = pairs_.find(pair);
    if (found != pairs_.end()) found->second.count -= count;
  }
  void gain(Pair pair, int64_t count, uint32_t word) {
    add(pair, count, word);
    grown_.push_back(pair);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Info> pairs_;
  std::priority_queue<Best> queue_;
  std::vector<Pair> grown_;
};

/// The initial vocabulary: the 256 bytes, ordered by the characters that represent them, as in other trainers.
TokenizerSpec start_of(const TrainOptions& options, std::array<TokenId, 256>& first_ids) {
  TokenizerSpec spec;
  spec.splits.push_back({pattern_named(options.pattern).regex});
  std::map<std::string, unsigned char> order;
  for (int byte = 0; byte < 256; ++byte) {
    order.emplace(to_byte_alphabet(std::string(1, static_cast<char>(byte))), static_cast<unsigned char>(byte));
  }
  for (const auto& [character, byte] : order) {
    first_ids[byte] = static_cast<TokenId>(spec.vocab.size());
    spec.vocab.push_back({VocabEntry::Kind::ordinary, std::string(1, static_cast<char>(byte))});
  }
  return spec;
}

}  // namespace

std::unique_ptr<Tokenizer> train_bpe(const std::vector<std::string_view>& corpora, const TrainOptions& options) {
  const auto specials = static_cast<int64_t>(options.specials.size());
  LAMINA_CHECK(options.vocab_size >= 256 + specials && options.vocab_size <= 1 << 24, "a vocabulary of ",
               options.vocab_size, " tokens: expected at least 256 for the bytes and ", specials,
               " for the special tokens, and at most ", 1 << 24);
  std::array<TokenId, 256> first_ids{};
  TokenizerSpec spec = start_of(options, first_ids);
  PairCounts counts(count_words(corpora, Splitter(spec.splits, "training"), first_ids));
  const int64_t target = options.vocab_size - specials;
  std::unordered_map<std::string, TokenId> ids;  // two merges may give the same bytes; they share one token
  while (static_cast<int64_t>(spec.vocab.size()) < target) {
    const PairCounts::Best best = counts.next();
    if (best.count < 2) break;
    const auto left = static_cast<TokenId>(best.pair >> 32);
    const auto right = static_cast<TokenId>(best.pair & 0xFFFFFFFFU);
    const std::string bytes =
        spec.vocab[static_cast<size_t>(left)].bytes + spec.vocab[static_cast<size_t>(right)].bytes;
    const auto [found, added] = ids.emplace(bytes, static_cast<TokenId>(spec.vocab.size()));
    if (added) spec.vocab.push_back({VocabEntry::Kind::ordinary, bytes});
    spec.merges.push_back({left, right, found->second, static_cast<int32_t>(spec.merges.size())});
    counts.merge(best.pair, found->second);
    if (options.progress) options.progress(static_cast<int64_t>(spec.vocab.size()) - 256, target - 256);
  }
  add_specials(spec, options.specials);
  return make_tokenizer(std::move(spec), "trained");
}

}  // namespace lamina::text
