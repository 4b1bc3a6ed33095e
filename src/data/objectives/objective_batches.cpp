#include "lamina/data/objectives/objective_batches.h"

#include <algorithm>
#include <utility>

#include "lamina/base/error.h"

namespace lamina::data {
namespace {

constexpr uint64_t kObjectiveStream = 0x6f626a65'00000000;  // "obje"; the row number is added

BatchOptions window_options(BatchOptions options, const Objective& objective, bool with_source) {
  LAMINA_CHECK(options.order != Order::packed, "the objective ", objective_name(objective),
               " has no packed order; use random, sequential or shuffled");
  // A window of n pairs (token, next token) contains n + 1 tokens.
  const int64_t text =
      with_source ? source_lengths(objective, options.length).text : text_length(objective, options.length);
  options.length = text - 1;
  return options;
}

/// Lengths of source and target for a text of this length.
SourceLengths lengths_of(const Objective& objective, int64_t text) {
  if (const auto* span = std::get_if<SpanObjective>(&objective)) {
    const SpanCounts counts = span_counts(*span, text);
    return {text, text - counts.noise + counts.spans + 2, counts.noise + counts.spans + 2};
  }
  const SpanCounts counts = span_counts(std::get<DenoiseObjective>(objective), text);
  return {text, text - counts.noise + counts.spans + 2, text + 1};
}

/// Writes a sequence as pairs (token, next token). Tokens before index `scored` are not targets; the rest of the row is
/// padding.
void write_pairs(const std::vector<int64_t>& sequence, int64_t scored, int64_t padding, int64_t row, Batch& batch) {
  const auto size = std::min(static_cast<int64_t>(sequence.size()) - 1, batch.length);
  const int64_t from = row * batch.length;
  for (int64_t i = 0; i < batch.length; ++i) {
    const auto at = static_cast<size_t>(from + i);
    batch.ids[at] = i <= size && i < static_cast<int64_t>(sequence.size()) ? sequence[static_cast<size_t>(i)] : padding;
    batch.targets[at] = i < size && i + 1 >= scored ? sequence[static_cast<size_t>(i + 1)] : kIgnoreIndex;
  }
}

}  // namespace

int64_t text_length(const Objective& objective, int64_t length) {
  if (std::holds_alternative<MaskedObjective>(objective)) return length;
  if (std::holds_alternative<DenoiseObjective>(objective)) return length / 2;  // the text twice, plus the start token
  const auto* span = std::get_if<SpanObjective>(&objective);
  if (span == nullptr) return length + 1;
  // Input and target together: every token once, a sentinel in both for each span, and the final sentinel.
  int64_t tokens = 2;
  while (tokens + 1 + 2 * span_counts(*span, tokens + 1).spans + 1 <= length + 1) ++tokens;
  return tokens;
}

bool has_source(const Objective& objective) {
  return std::holds_alternative<SpanObjective>(objective) || std::holds_alternative<DenoiseObjective>(objective);
}

SourceLengths source_lengths(const Objective& objective, int64_t length) {
  LAMINA_CHECK(has_source(objective), "the objective ", objective_name(objective),
               " has no source for an encoder; use span or denoise");
  SourceLengths best = lengths_of(objective, 2);
  for (int64_t text = 3; text <= length; ++text) {
    const SourceLengths next = lengths_of(objective, text);
    if (next.source + next.target > length) break;
    best = next;
  }
  return best;
}

ObjectiveBatches::ObjectiveBatches(TokenFile file, const BatchOptions& options, Objective objective,
                                   ObjectiveVocabulary vocabulary, std::optional<int64_t> start_token)
    : options_(options),
      objective_(std::move(objective)),
      vocabulary_(std::move(vocabulary)),
      start_token_(start_token),
      windows_((check_objective(objective_, options.length), std::move(file)),
               window_options(options, objective_, start_token.has_value())) {}

Batch ObjectiveBatches::at(int64_t step) const {
  const Batch windows = windows_.at(step);
  Batch batch;
  batch.rows = options_.batch;
  if (!start_token_) {
    batch.length = options_.length;
    batch.ids.resize(static_cast<size_t>(batch.rows * batch.length));
    batch.targets.resize(batch.ids.size());
  }
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto begin = windows.ids.begin() + row * windows.length;
    std::vector<int64_t> tokens(begin, begin + windows.length);
    tokens.push_back(windows.targets[static_cast<size_t>((row + 1) * windows.length - 1)]);
    Dice dice({options_.seed, kObjectiveStream + static_cast<uint64_t>(step * options_.batch + row)});
    start_token_ ? add_pair(tokens, dice, batch) : fill_row(tokens, dice, row, batch);
  }
  return batch;
}

/// Appends a row for an encoder–decoder model.
void ObjectiveBatches::add_pair(const std::vector<int64_t>& tokens, Dice& dice, Batch& batch) const {
  const auto* span = std::get_if<SpanObjective>(&objective_);
  CorruptedText text = span != nullptr ? corrupt_spans(*span, vocabulary_, tokens, dice)
                                       : add_noise(std::get<DenoiseObjective>(objective_), vocabulary_, tokens, dice);
  if (span == nullptr) text.target.erase(text.target.begin());  // replaced by the decoder's start token
  if (vocabulary_.begin) text.input.insert(text.input.begin(), *vocabulary_.begin);
  if (vocabulary_.end) {
    text.input.push_back(*vocabulary_.end);
    text.target.push_back(*vocabulary_.end);
  }
  batch.source_length = static_cast<int64_t>(text.input.size());
  batch.length = static_cast<int64_t>(text.target.size());
  batch.source.insert(batch.source.end(), text.input.begin(), text.input.end());
  batch.ids.push_back(*start_token_);
  batch.ids.insert(batch.ids.end(), text.target.begin(), text.target.end() - 1);
  batch.targets.insert(batch.targets.end(), text.target.begin(), text.target.end());
}

void ObjectiveBatches::fill_row(const std::vector<int64_t>& tokens, Dice& dice, int64_t row, Batch& batch) const {
  const auto write_both = [&](CorruptedText text) {
    const auto scored = static_cast<int64_t>(text.input.size());
    text.input.insert(text.input.end(), text.target.begin(), text.target.end());
    write_pairs(text.input, scored, vocabulary_.padding, row, batch);
  };
  if (const auto* prefix = std::get_if<PrefixObjective>(&objective_)) {
    const auto share = [&](double of) { return static_cast<int64_t>(of * static_cast<double>(batch.length)); };
    const int64_t low = std::min(share(prefix->shortest), batch.length - 1);
    const int64_t high = std::min(share(prefix->longest), batch.length - 1);
    write_pairs(tokens, std::max<int64_t>(1, low + dice.below(high - low + 1)), vocabulary_.padding, row, batch);
  } else if (const auto* fim = std::get_if<FimObjective>(&objective_)) {
    std::vector<int64_t> shorter(tokens.begin(), tokens.end() - 3);
    std::vector<int64_t> arranged = fill_in_middle(*fim, vocabulary_, shorter, dice);
    write_pairs(arranged.size() == shorter.size() ? tokens : arranged, 1, vocabulary_.padding, row, batch);
  } else if (const auto* masked = std::get_if<MaskedObjective>(&objective_)) {
    const CorruptedText text = mask_tokens(*masked, vocabulary_, tokens, dice);
    std::copy(text.input.begin(), text.input.end(), batch.ids.begin() + row * batch.length);
    std::copy(text.target.begin(), text.target.end(), batch.targets.begin() + row * batch.length);
  } else if (const auto* span = std::get_if<SpanObjective>(&objective_)) {
    write_both(corrupt_spans(*span, vocabulary_, tokens, dice));
  } else if (const auto* noise = std::get_if<DenoiseObjective>(&objective_)) {
    write_both(add_noise(*noise, vocabulary_, tokens, dice));
  } else {
    write_pairs(tokens, 1, vocabulary_.padding, row, batch);
  }
}

}  // namespace lamina::data
