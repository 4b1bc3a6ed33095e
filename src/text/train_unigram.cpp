#include "lamina/text/train_unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>

#include "lamina/base/error.h"
#include "lamina/text/byte_trie.h"
#include "lamina/text/spec_build.h"
#include "lamina/text/train_words.h"
#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

constexpr const char* kWordMark = "▁";
constexpr size_t kLongestPiece = 16;       // in characters
constexpr size_t kLongestTrainWord = 256;  // in bytes; longer words are ignored
constexpr double kShrink = 0.75;           // share of the pieces that remains after one pruning
constexpr double kKeptCount = 0.5;         // a piece with a lower expected count is dropped

struct ScoredPiece {
  std::string text;
  double score = 0;  // log-probability
};

/// The start of every character, and the end of the text.
std::vector<size_t> boundaries_of(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at += std::max<size_t>(1, first_code_point(text.substr(at, 4)).length)) {
    starts.push_back(at);
  }
  starts.push_back(text.size());
  return starts;
}

double digamma(double x) {
  double result = 0;
  for (; x < 7; ++x) result -= 1 / x;
  x -= 0.5;
  const double square = 1 / (x * x);
  return result + std::log(x) + square / 24 - 7.0 / 960 * square * square + 31.0 / 8064 * square * square * square;
}

double log_add(double a, double b) {
  const double low = std::min(a, b);
  const double high = std::max(a, b);
  return high + std::log1p(std::exp(low - high));
}

/// A segmentation model during training.
class PieceModel {
 public:
  explicit PieceModel(std::vector<ScoredPiece> pieces) : pieces_(std::move(pieces)) {
    for (size_t i = 0; i < pieces_.size(); ++i) trie_.add(pieces_[i].text, static_cast<TokenId>(i));
  }
  const std::vector<ScoredPiece>& pieces() const { return pieces_; }

  /// Calls body(begin, end, piece) for every piece that occurs in the word.
  template <class Body>
  void each_edge(std::string_view word, const Body& body) const {
    for (size_t at = 0; at < word.size(); at += std::max<size_t>(1, first_code_point(word.substr(at, 4)).length)) {
      ByteTrie::Node node = ByteTrie::kRoot;
      for (size_t i = at; i < word.size();) {
        node = trie_.child(node, static_cast<unsigned char>(word[i++]));
        if (node == ByteTrie::kNone) break;
        if (trie_.token(node) != ByteTrie::kNoToken) body(at, i, static_cast<size_t>(trie_.token(node)));
      }
    }
  }

  /// Adds the expected count of each piece in the word (forward-backward algorithm). Returns the word's log-likelihood.
  double add_expected(std::string_view word, double count, std::vector<double>& expected) const {
    const double none = -std::numeric_limits<double>::infinity();
    std::vector<double> before(word.size() + 1, none);
    std::vector<double> after(word.size() + 1, none);
    struct Edge {
      size_t begin, end, piece;
    };
    std::vector<Edge> edges;
    each_edge(word, [&](size_t begin, size_t end, size_t piece) { edges.push_back({begin, end, piece}); });
    before[0] = 0;
    for (const Edge& edge : edges) {  // ordered by begin
      if (before[edge.begin] == none) continue;
      const double sum = before[edge.begin] + pieces_[edge.piece].score;
      before[edge.end] = before[edge.end] == none ? sum : log_add(before[edge.end], sum);
    }
    if (before[word.size()] == none) return 0;  // some character has no piece
    after[word.size()] = 0;
    for (size_t i = edges.size(); i-- > 0;) {
      const Edge& edge = edges[i];
      if (after[edge.end] == none) continue;
      const double sum = after[edge.end] + pieces_[edge.piece].score;
      after[edge.begin] = after[edge.begin] == none ? sum : log_add(after[edge.begin], sum);
    }
    const double total = before[word.size()];
    for (const Edge& edge : edges) {
      if (before[edge.begin] == none || after[edge.end] == none) continue;
      expected[edge.piece] +=
          count * std::exp(before[edge.begin] + pieces_[edge.piece].score + after[edge.end] - total);
    }
    return count * total;
  }

  /// The most probable segmentation that does not use the piece `banned` (−1: none). Empty if there is none.
  std::vector<size_t> best(std::string_view word, int64_t banned) const {
    const double none = -std::numeric_limits<double>::infinity();
    struct End {
      double score;
      size_t begin, piece;
    };
    std::vector<End> ends(word.size() + 1, {none, 0, 0});
    ends[0].score = 0;
    each_edge(word, [&](size_t begin, size_t end, size_t piece) {
      if (static_cast<int64_t>(piece) == banned || ends[begin].score == none) return;
      const double sum = ends[begin].score + pieces_[piece].score;
      if (sum > ends[end].score) ends[end] = {sum, begin, piece};
    });
    std::vector<size_t> path;
    if (ends[word.size()].score == none) return path;
    for (size_t at = word.size(); at > 0; at = ends[at].begin) path.push_back(ends[at].piece);
    std::ranges::reverse(path);
    return path;
  }

 private:
  std::vector<ScoredPiece> pieces_;
  ByteTrie trie_;
};

/// The words of the text, and its characters sorted by count. A piece that alone covers one of these characters must
/// stay.
struct TrainingText {
  std::vector<CountedWord> words;
  std::vector<std::pair<std::string, int64_t>> characters;
};

TrainingText text_of_training(const std::vector<std::string_view>& corpora, const TokenizerSpec& spec) {
  TrainingText text;
  std::unordered_map<std::string, int64_t> counts;
  for (CountedWord& word : count_pieces(corpora, spec)) {
    if (word.first.size() > kLongestTrainWord) continue;
    const std::vector<size_t> at = boundaries_of(word.first);
    for (size_t i = 0; i + 1 < at.size(); ++i) counts[word.first.substr(at[i], at[i + 1] - at[i])] += word.second;
    text.words.push_back(std::move(word));
  }
  text.characters.assign(counts.begin(), counts.end());
  std::ranges::sort(text.characters, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return text;
}

/// The initial pieces: all characters, and the substrings with the highest count × length.
std::vector<ScoredPiece> seed_pieces(const TrainingText& text, size_t most) {
  std::unordered_map<std::string, int64_t> counts;
  for (const auto& [word, count] : text.words) {
    const std::vector<size_t> at = boundaries_of(word);
    for (size_t i = 0; i + 1 < at.size(); ++i) {
      for (size_t j = i + 2; j < at.size() && j - i <= kLongestPiece; ++j) {
        counts[word.substr(at[i], at[j] - at[i])] += count;
      }
    }
  }
  std::vector<std::pair<std::string, int64_t>> order;
  for (const auto& [piece, count] : counts) {
    if (count > 1) order.emplace_back(piece, count * static_cast<int64_t>(boundaries_of(piece).size() - 1));
  }
  std::ranges::sort(order, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (order.size() > most) order.resize(most);
  std::vector<ScoredPiece> pieces;
  double sum = 0;
  using Weighted = std::vector<std::pair<std::string, int64_t>>;
  for (const Weighted* list : std::initializer_list<const Weighted*>{&text.characters, &order}) {
    for (const auto& [piece, weight] : *list) {
      pieces.push_back({piece, static_cast<double>(weight)});
      sum += static_cast<double>(weight);
    }
  }
  for (ScoredPiece& piece : pieces) piece.score = std::log(piece.score) - std::log(sum);
  return pieces;
}

/// One EM iteration. Drops pieces whose expected count is below one half. The digamma function is the M-step for a
/// sparse prior (variational Bayes).
PieceModel em_step(const PieceModel& model, const TrainingText& text, const std::set<std::string>& required) {
  std::vector<double> expected(model.pieces().size());
  for (const auto& [word, count] : text.words) model.add_expected(word, static_cast<double>(count), expected);
  std::vector<ScoredPiece> kept;
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const ScoredPiece& piece = model.pieces()[i];
    const bool stays = required.contains(piece.text);
    if (expected[i] < kKeptCount && !stays) continue;
    kept.push_back({piece.text, std::max(expected[i], kKeptCount)});
    sum += kept.back().score;
  }
  for (ScoredPiece& piece : kept) piece.score = digamma(piece.score) - digamma(sum);
  return PieceModel(std::move(kept));
}

/// Keeps `most` pieces: the required ones, and those whose removal would lower the likelihood the most.
PieceModel pruned(const PieceModel& model, const TrainingText& text, const std::set<std::string>& required,
                  size_t most) {
  const std::vector<ScoredPiece>& pieces = model.pieces();
  std::vector<double> used(pieces.size());
  double total = 0;
  for (const auto& [word, count] : text.words) {
    for (const size_t piece : model.best(word, -1)) {
      used[piece] += static_cast<double>(count);
      total += static_cast<double>(count);
    }
  }
  struct Loss {
    double loss;
    size_t piece;
  };
  std::vector<Loss> candidates;
  std::vector<bool> stays(pieces.size());
  size_t kept = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::vector<size_t> instead = model.best(pieces[i].text, static_cast<int64_t>(i));
    if (required.contains(pieces[i].text) || instead.empty()) {
      stays[i] = true;
      ++kept;
      continue;
    }
    if (used[i] == 0) continue;
    // The pieces of the alternative segmentation take over the count of the removed piece.
    const double log_total = std::log(total);
    const double new_total = std::log(total + used[i] * static_cast<double>(instead.size() - 1));
    double other = 0;
    for (const size_t piece : instead) other += std::log(used[piece] + used[i]) - new_total;
    candidates.push_back({used[i] / total * (std::log(used[i]) - log_total - other), i});
  }
  std::ranges::sort(
      candidates, [](const Loss& a, const Loss& b) { return a.loss != b.loss ? a.loss > b.loss : a.piece < b.piece; });
  for (size_t i = 0; i < candidates.size() && kept < most; ++i, ++kept) stays[candidates[i].piece] = true;
  std::vector<ScoredPiece> left;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (stays[i]) left.push_back(pieces[i]);
  }
  return PieceModel(std::move(left));
}

TokenizerSpec unigram_spec() {
  using Kind = NormalizerStep::Kind;
  TokenizerSpec spec;
  spec.algorithm = Algorithm::unigram;
  spec.symbols = Symbols::characters;
  spec.fuse_unknown = true;
  spec.space = kWordMark;
  spec.strip_prefix = true;
  spec.normalizers = {{Kind::nmt}, {Kind::nfkc}, {Kind::replace_regex, " {2,}", " "}};
  spec.normalizers.push_back({Kind::replace, " ", kWordMark});  // Metaspace
  spec.prefix = {Prefix::When::every_segment, kWordMark};
  spec.splits.push_back({kWordMark, true, SplitStep::Behavior::merged_with_next, false});
  return spec;
}

/// Adds special tokens, bytes, and pieces; the most probable pieces come first.
void add_pieces(TokenizerSpec& spec, std::vector<ScoredPiece> pieces, bool byte_fallback) {
  const auto add = [&](VocabEntry entry, double score) {
    spec.vocab.push_back(std::move(entry));
    spec.scores.push_back(score);
  };
  for (const char* special : {"<pad>", "</s>", "<unk>"}) {
    add_token(spec, {static_cast<TokenId>(spec.vocab.size()), special});
    add({VocabEntry::Kind::opaque, special}, 0);
  }
  spec.eos = 1;
  spec.appended = spec.eos;
  spec.unknown = 2;
  spec.byte_fallback = byte_fallback;
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    add({VocabEntry::Kind::byte, std::string(1, static_cast<char>(byte))}, 0);
  }
  std::ranges::sort(pieces, [](const ScoredPiece& a, const ScoredPiece& b) {
    return a.score != b.score ? a.score > b.score : a.text < b.text;
  });
  double lowest = 0;
  for (ScoredPiece& piece : pieces) {
    lowest = std::min(lowest, piece.score);
    add({VocabEntry::Kind::ordinary, std::move(piece.text)}, piece.score);
  }
  spec.unknown_score = lowest - kUnknownPenalty;
}

}  // namespace

std::unique_ptr<Tokenizer> train_unigram(const std::vector<std::string_view>& corpora, const UnigramOptions& options) {
  TokenizerSpec spec = unigram_spec();
  const int64_t fixed = 3 + (options.byte_fallback ? 256 : 0) + static_cast<int64_t>(options.specials.size());
  LAMINA_CHECK(options.vocab_size > fixed && options.vocab_size <= 1 << 24, "a Unigram vocabulary of ",
               options.vocab_size, " tokens: expected more than the ", fixed, " special tokens and bytes, and at most ",
               1 << 24);
  const auto target = static_cast<size_t>(options.vocab_size - fixed);
  TrainingText text = text_of_training(corpora, spec);
  LAMINA_CHECK(!text.characters.empty(), "the text is empty; a Unigram vocabulary needs at least one character");
  if (text.characters.size() > target) text.characters.resize(target);  // the rarest characters become unknown
  std::set<std::string> required;
  for (const auto& [character, count] : text.characters) required.insert(character);
  PieceModel model(seed_pieces(text, std::max<size_t>(10 * target, 100000)));
  const size_t first = model.pieces().size();
  // Like SentencePiece, prune only to 1.1 times the size, so that the final choice is by probability.
  const auto roughly = std::max(target, static_cast<size_t>(1.1 * static_cast<double>(target)));
  for (;;) {
    for (int i = 0; i < 2; ++i) model = em_step(model, text, required);
    const size_t now = model.pieces().size();
    if (options.progress) {
      options.progress(static_cast<int64_t>(first - now), static_cast<int64_t>(first - std::min(first, target)));
    }
    if (now <= roughly) break;
    model = pruned(model, text, required, std::max(roughly, static_cast<size_t>(kShrink * static_cast<double>(now))));
    if (model.pieces().size() == now) break;
  }
  std::vector<ScoredPiece> pieces = model.pieces();
  std::ranges::stable_sort(pieces, [&](const ScoredPiece& a, const ScoredPiece& b) {
    const bool first_required = required.contains(a.text);
    const bool second_required = required.contains(b.text);
    return first_required != second_required ? first_required : a.score > b.score;
  });
  if (pieces.size() > target) pieces.resize(target);
  add_pieces(spec, std::move(pieces), options.byte_fallback);
  add_specials(spec, options.specials);
  spec.scores.resize(spec.vocab.size());
  return make_tokenizer(std::move(spec), "trained");
}

}  // namespace lamina::text
