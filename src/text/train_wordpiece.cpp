#include "lamina/text/train_wordpiece.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>

#include "lamina/base/error.h"
#include "lamina/text/formats.h"
#include "lamina/text/patterns.h"
#include "lamina/text/spec_build.h"
#include "lamina/text/train_words.h"
#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

constexpr const char* kMark = "##";
constexpr size_t kLongestWord = 100;  // in bytes; longer words are ignored

struct SplitWord {
  std::vector<TokenId> symbols;
  int64_t count = 0;
};

using WordPair = uint64_t;
WordPair word_pair(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
TokenId left_of(WordPair pair) { return static_cast<TokenId>(pair >> 32); }
TokenId right_of(WordPair pair) { return static_cast<TokenId>(pair & 0xFFFFFFFFU); }

/// Counts of symbols and of pairs of neighbors, updated during merging. The score of a pair changes with the count of
/// its parts, so a merge queues all pairs of both parts again.
class LikelihoodMerges {
 public:
  LikelihoodMerges(std::vector<SplitWord> words, int64_t min_count) : words_(std::move(words)), min_count_(min_count) {
    for (size_t w = 0; w < words_.size(); ++w) {
      const SplitWord& word = words_[w];
      for (size_t i = 0; i < word.symbols.size(); ++i) {
        symbol(word.symbols[i]).count += word.count;
        characters_ += static_cast<double>(word.count);
        if (i + 1 < word.symbols.size()) gain(word_pair(word.symbols[i], word.symbols[i + 1]), word.count, w);
      }
    }
    for (const auto& [pair, info] : pairs_) queue(pair, info.count);
  }

  /// Finds the pair with the highest score. Returns false if no pair occurs often enough.
  bool next(WordPair& best) {
    while (!queue_.empty()) {
      const Scored top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      if (found == pairs_.end() || found->second.count < min_count_) continue;
      // outdated queue entry: the pair's count or score has changed
      if (top.count != found->second.count || top.score != score(top.pair, top.count)) continue;
      best = top.pair;
      return true;
    }
    return false;
  }

  void merge(WordPair pair, TokenId result) {
    const std::vector<uint32_t> holders = std::move(pairs_[pair].words);
    pairs_.erase(pair);
    changed_.clear();
    for (const uint32_t w : holders) merge_in(w, left_of(pair), right_of(pair), result);
    for (const TokenId part : {left_of(pair), right_of(pair)}) {
      std::set<WordPair>& mine = symbol(part).pairs;
      changed_.insert(mine.begin(), mine.end());
    }
    for (const WordPair one : changed_) {
      const auto found = pairs_.find(one);
      if (found != pairs_.end() && found->second.count > 0) {
        queue(one, found->second.count);
      } else {
        symbol(left_of(one)).pairs.erase(one);
        symbol(right_of(one)).pairs.erase(one);
        pairs_.erase(one);
      }
    }
  }

 private:
  struct PairInfo {
    int64_t count = 0;
    std::vector<uint32_t> words;  // words that contain the pair or contained it
  };
  struct SymbolInfo {
    int64_t count = 0;
    std::set<WordPair> pairs;  // pairs that contain this symbol
  };
  struct Scored {
    double score = 0;
    int64_t count = 0;
    WordPair pair = 0;
    bool operator<(const Scored& other) const {  // std::priority_queue returns the largest first
      if (score != other.score) return score < other.score;
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  SymbolInfo& symbol(TokenId id) {
    if (static_cast<size_t>(id) >= symbols_.size()) symbols_.resize(static_cast<size_t>(id) + 1);
    return symbols_[static_cast<size_t>(id)];
  }
  double score(WordPair pair, int64_t count) {
    const auto together = static_cast<double>(count);
    return together * std::log(together * characters_ /
                               (static_cast<double>(symbol(left_of(pair)).count) *
                                static_cast<double>(symbol(right_of(pair)).count)));
  }
  void queue(WordPair pair, int64_t count) {
    if (count >= min_count_) queue_.push({score(pair, count), count, pair});
  }
  void gain(WordPair pair, int64_t count, size_t word) {
    PairInfo& info = pairs_[pair];
    info.count += count;
    const auto w = static_cast<uint32_t>(word);
    if (info.words.empty() || info.words.back() != w) info.words.push_back(w);
    symbol(left_of(pair)).pairs.insert(pair);
    symbol(right_of(pair)).pairs.insert(pair);
  }

  /// Removes the word's pairs and symbols from the counts, merges, and adds the word's new counts.
  void merge_in(uint32_t w, TokenId left, TokenId right, TokenId result) {
    std::vector<TokenId>& symbols = words_[w].symbols;
    const int64_t count = words_[w].count;
    const WordPair merged = word_pair(left, right);
    const auto each = [&](const auto& pair_body, const auto& symbol_body) {
      for (size_t i = 0; i < symbols.size(); ++i) {
        symbol_body(symbols[i]);
        if (i + 1 < symbols.size()) pair_body(word_pair(symbols[i], symbols[i + 1]));
      }
    };
    each(
        [&](WordPair pair) {
          if (pair == merged) return;
          const auto found = pairs_.find(pair);
          if (found != pairs_.end()) found->second.count -= count;
          changed_.insert(pair);
        },
        [&](TokenId id) { symbol(id).count -= count; });
    size_t out = 0;
    for (size_t i = 0; i < symbols.size(); ++i, ++out) {
      const bool here = symbols[i] == left && i + 1 < symbols.size() && symbols[i + 1] == right;
      symbols[out] = here ? result : symbols[i];
      if (here) ++i;
    }
    symbols.resize(out);
    each(
        [&](WordPair pair) {
          gain(pair, count, w);
          changed_.insert(pair);
        },
        [&](TokenId id) { symbol(id).count += count; });
  }

  std::vector<SplitWord> words_;
  int64_t min_count_;
  double characters_ = 0;  // number of characters in the whole text
  std::vector<SymbolInfo> symbols_;
  std::unordered_map<WordPair, PairInfo> pairs_;
  std::priority_queue<Scored> queue_;
  std::set<WordPair> changed_;
};

TokenizerSpec bert_spec(const WordPieceOptions& options) {
  TokenizerSpec spec;
  spec.algorithm = Algorithm::wordpiece;
  spec.symbols = Symbols::characters;
  spec.continuation = kMark;
  spec.cleanup = true;
  NormalizerStep normalizer{NormalizerStep::Kind::bert};
  normalizer.lowercase = normalizer.strip_accents = options.lowercase;
  spec.normalizers.push_back(normalizer);
  spec.splits = bert_splits();
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    spec.vocab.push_back({VocabEntry::Kind::ordinary, special});
  }
  return spec;
}

/// Splits words into characters. Characters that do not begin the word get the continuation mark. Adds all characters
/// to the vocabulary, sorted; those that begin words come first.
std::vector<SplitWord> split_words(const std::vector<CountedWord>& counted, TokenizerSpec& spec, int64_t room) {
  std::map<std::string, int64_t> counts;
  std::vector<std::pair<std::vector<std::string>, int64_t>> spelled;
  for (const auto& [word, count] : counted) {
    if (word.size() > kLongestWord) continue;
    std::vector<std::string> characters;
    for (size_t at = 0; at < word.size();) {
      const size_t length = first_code_point(std::string_view(word).substr(at, 4)).length;
      characters.push_back((at == 0 ? "" : kMark) + word.substr(at, length));
      counts[characters.back()] += count;
      at += length;
    }
    spelled.emplace_back(std::move(characters), count);
  }
  // Choose the most frequent characters that fit.
  std::vector<std::pair<std::string, int64_t>> order(counts.begin(), counts.end());
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.second > b.second; });
  if (static_cast<int64_t>(order.size()) > room) order.resize(static_cast<size_t>(room));
  std::ranges::sort(order, [](const auto& a, const auto& b) {
    const bool first_marked = a.first.starts_with(kMark);
    const bool second_marked = b.first.starts_with(kMark);
    return first_marked != second_marked ? second_marked : a.first < b.first;
  });
  std::unordered_map<std::string, TokenId> ids;
  for (const auto& [character, count] : order) {
    ids.emplace(character, static_cast<TokenId>(spec.vocab.size()));
    spec.vocab.push_back({VocabEntry::Kind::ordinary, character});
  }
  std::vector<SplitWord> words;
  for (const auto& [characters, count] : spelled) {
    SplitWord word{{}, count};
    for (const std::string& character : characters) {
      const auto found = ids.find(character);
      if (found != ids.end()) word.symbols.push_back(found->second);
    }
    if (word.symbols.size() == characters.size()) words.push_back(std::move(word));
  }
  return words;
}

}  // namespace

std::unique_ptr<Tokenizer> train_wordpiece(const std::vector<std::string_view>& corpora,
                                           const WordPieceOptions& options) {
  TokenizerSpec spec = bert_spec(options);
  const auto fixed = static_cast<int64_t>(spec.vocab.size() + options.specials.size());
  LAMINA_CHECK(options.vocab_size > fixed && options.vocab_size <= 1 << 24, "a WordPiece vocabulary of ",
               options.vocab_size, " tokens: expected more than the ", fixed, " special tokens, and at most ", 1 << 24);
  const int64_t target = options.vocab_size - static_cast<int64_t>(options.specials.size());
  LikelihoodMerges merges(split_words(count_pieces(corpora, spec), spec, options.vocab_size - fixed),
                          std::max<int64_t>(options.min_count, 1));
  std::unordered_map<std::string, TokenId> ids;
  for (size_t i = 0; i < spec.vocab.size(); ++i) ids.emplace(spec.vocab[i].bytes, static_cast<TokenId>(i));
  for (WordPair best = 0; static_cast<int64_t>(spec.vocab.size()) < target && merges.next(best);) {
    const std::string& left = spec.vocab[static_cast<size_t>(left_of(best))].bytes;
    const std::string& right = spec.vocab[static_cast<size_t>(right_of(best))].bytes;
    const std::string joined = left + right.substr(std::string_view(kMark).size());
    const auto [found, added] = ids.emplace(joined, static_cast<TokenId>(spec.vocab.size()));
    if (added) spec.vocab.push_back({VocabEntry::Kind::ordinary, joined});
    merges.merge(best, found->second);
    if (options.progress) options.progress(static_cast<int64_t>(spec.vocab.size()), target);
  }
  add_bert_specials(spec, "training");
  add_specials(spec, options.specials);
  return make_tokenizer(std::move(spec), "trained");
}

}  // namespace lamina::text
