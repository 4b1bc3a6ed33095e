#include <algorithm>
#include <cmath>
#include <numeric>

#include "lamina/base/error.h"
#include "lamina/data/objectives/objective.h"

namespace lamina::data {
namespace {

constexpr int64_t kFine = int64_t{1} << 40;  // resolution of probabilities

bool happens(double probability, Dice& dice) {
  return static_cast<double>(dice.below(kFine)) < probability * static_cast<double>(kFine);
}

/// Divides `total` into `parts` positive lengths. All divisions are equally likely.
std::vector<int64_t> random_lengths(int64_t total, int64_t parts, Dice& dice) {
  std::vector<int64_t> cuts = dice.different(parts - 1, total - 1);
  std::ranges::sort(cuts);
  std::vector<int64_t> lengths;
  int64_t last = 0;
  for (const int64_t cut : cuts) {
    lengths.push_back(cut + 1 - last);
    last = cut + 1;
  }
  lengths.push_back(total - last);
  return lengths;
}

/// Poisson-distributed lengths, conditioned on their sum: each of the `total` tokens falls into one of `parts` spans at
/// random. A span may be empty.
std::vector<int64_t> poisson_lengths(int64_t total, int64_t parts, Dice& dice) {
  std::vector<int64_t> lengths(static_cast<size_t>(parts));
  for (int64_t i = 0; i < total; ++i) ++lengths[static_cast<size_t>(dice.below(parts))];
  return lengths;
}

std::vector<int64_t> with_permuted_sentences(const std::vector<int64_t>& tokens, const std::vector<bool>& ends,
                                             Dice& dice) {
  std::vector<std::pair<size_t, size_t>> sentences;
  size_t begin = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<size_t>(tokens[i]);
    if (i + 1 < tokens.size() && !(id < ends.size() && ends[id])) continue;
    sentences.emplace_back(begin, i + 1);
    begin = i + 1;
  }
  std::vector<int64_t> result;
  result.reserve(tokens.size());
  const auto count = static_cast<int64_t>(sentences.size());
  for (const int64_t which : dice.different(count, count)) {
    const auto [from, to] = sentences[static_cast<size_t>(which)];
    for (size_t i = from; i < to; ++i) result.push_back(tokens[i]);
  }
  return result;
}

}  // namespace

CorruptedText mask_tokens(const MaskedObjective& objective, const ObjectiveVocabulary& vocabulary,
                          const std::vector<int64_t>& tokens, Dice& dice) {
  CorruptedText result{tokens, std::vector<int64_t>(tokens.size(), kIgnoreIndex)};
  std::vector<size_t> candidates;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<size_t>(tokens[i]);
    if (id >= vocabulary.is_special.size() || !vocabulary.is_special[id]) candidates.push_back(i);
  }
  const auto size = static_cast<int64_t>(candidates.size());
  if (size == 0) return result;
  const int64_t count = std::clamp<int64_t>(std::llround(objective.rate * static_cast<double>(size)), 1, size);
  for (const int64_t which : dice.different(count, size)) {
    const size_t at = candidates[static_cast<size_t>(which)];
    result.target[at] = tokens[at];
    const double draw = static_cast<double>(dice.below(kFine)) / static_cast<double>(kFine);
    if (draw < objective.mask_share) {
      result.input[at] = vocabulary.tokens[0];
    } else if (draw < objective.mask_share + objective.random_share && !vocabulary.texts.empty()) {
      result.input[at] = dice.of(vocabulary.texts);
    }
  }
  return result;
}

SpanCounts span_counts(const SpanObjective& objective, int64_t tokens) {
  if (tokens < 2) return {};
  const int64_t noise =
      std::clamp<int64_t>(std::llround(objective.density * static_cast<double>(tokens)), 1, tokens - 1);
  const int64_t spans = std::llround(static_cast<double>(noise) / objective.mean_length);
  // Text and noise alternate, so there must be at least one token of text per span.
  return {noise, std::clamp<int64_t>(spans, 1, std::min(noise, tokens - noise))};
}

CorruptedText corrupt_spans(const SpanObjective& objective, const ObjectiveVocabulary& vocabulary,
                            const std::vector<int64_t>& tokens, Dice& dice) {
  const auto size = static_cast<int64_t>(tokens.size());
  const SpanCounts counts = span_counts(objective, size);
  LAMINA_CHECK(counts.spans > 0 && counts.spans < static_cast<int64_t>(vocabulary.tokens.size()), "a sequence of ",
               size, " tokens has ", counts.spans, " spans, and ", vocabulary.tokens.size(), " sentinels");
  const std::vector<int64_t> noise = random_lengths(counts.noise, counts.spans, dice);
  const std::vector<int64_t> text = random_lengths(size - counts.noise, counts.spans, dice);
  CorruptedText result;
  auto at = tokens.begin();
  for (size_t i = 0; i < noise.size(); ++i) {
    result.input.insert(result.input.end(), at, at + text[i]);
    at += text[i];
    result.input.push_back(vocabulary.tokens[i]);
    result.target.push_back(vocabulary.tokens[i]);
    result.target.insert(result.target.end(), at, at + noise[i]);
    at += noise[i];
  }
  result.target.push_back(vocabulary.tokens[noise.size()]);  // a final sentinel marks the end
  return result;
}

SpanCounts span_counts(const DenoiseObjective& objective, int64_t tokens) {
  if (tokens < 1) return {};
  const int64_t masked =
      std::clamp<int64_t>(std::llround(objective.rate * static_cast<double>(tokens)), 1, std::max<int64_t>(1, tokens));
  const int64_t spans = std::llround(static_cast<double>(masked) / objective.mean_length);
  return {masked, std::clamp<int64_t>(spans, 1, masked)};
}

CorruptedText add_noise(const DenoiseObjective& objective, const ObjectiveVocabulary& vocabulary,
                        const std::vector<int64_t>& tokens, Dice& dice) {
  const int64_t mask = vocabulary.tokens[0];
  const std::vector<int64_t> text =
      objective.permute_sentences ? with_permuted_sentences(tokens, vocabulary.ends_sentence, dice) : tokens;
  const auto size = static_cast<int64_t>(text.size());
  const SpanCounts counts = span_counts(objective, size);
  const std::vector<int64_t> spans = poisson_lengths(counts.noise, counts.spans, dice);
  // Choose the gaps between spans uniformly, by dividing the remaining text.
  std::vector<int64_t> gaps = random_lengths(size - counts.noise + counts.spans + 1, counts.spans + 1, dice);
  CorruptedText result{{}, {vocabulary.tokens[1]}};
  auto at = text.begin();
  for (size_t i = 0; i < gaps.size(); ++i) {
    result.input.insert(result.input.end(), at, at + (gaps[i] - 1));
    at += gaps[i] - 1;
    if (i == spans.size()) break;
    result.input.push_back(mask);
    at += spans[i];
  }
  result.target.insert(result.target.end(), tokens.begin(), tokens.end());
  return result;
}

std::vector<int64_t> fill_in_middle(const FimObjective& objective, const ObjectiveVocabulary& vocabulary,
                                    const std::vector<int64_t>& tokens, Dice& dice) {
  if (!happens(objective.rate, dice)) return tokens;
  const bool suffix_first = happens(objective.spm_share, dice);
  const auto size = static_cast<int64_t>(tokens.size());
  int64_t first = dice.below(size + 1);
  int64_t second = dice.below(size + 1);
  if (first > second) std::swap(first, second);
  std::vector<int64_t> result;
  result.reserve(tokens.size() + 3);
  const auto add = [&](int64_t from, int64_t to) {
    result.insert(result.end(), tokens.begin() + from, tokens.begin() + to);
  };
  result.push_back(vocabulary.tokens[0]);
  if (!suffix_first) add(0, first);
  result.push_back(vocabulary.tokens[1]);
  add(second, size);
  result.push_back(vocabulary.tokens[2]);
  if (suffix_first) add(0, first);
  add(first, second);
  return result;
}

}  // namespace lamina::data
