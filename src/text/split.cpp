#include "lamina/text/split.h"

#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

struct Part {
  std::string_view text;
  bool match;
};

/// The matches and the text between them, in order. No part is empty.
std::vector<Part> parts_of(std::string_view text, const Regex& regex) {
  std::vector<Part> parts;
  Regex::Search search(regex, text);
  for (size_t at = 0; at < text.size();) {
    const Regex::Span span = search.next(at);
    if (span.begin > at) parts.push_back({text.substr(at, span.begin - at), false});
    if (span.end > span.begin) parts.push_back({text.substr(span.begin, span.end - span.begin), true});
    at = span.end;
  }
  return parts;
}

std::string_view joined(std::string_view left, std::string_view right) {
  return {left.data(), left.size() + right.size()};
}

/// Joins or drops parts as the step's behavior says. Delimiters are the matches or, with `invert`, the other parts.
void apply(std::vector<Part> parts, const SplitStep& step, std::vector<std::string_view>& pieces) {
  using Behavior = SplitStep::Behavior;
  const size_t first = pieces.size();
  bool before = false;  // whether the previous part was a delimiter
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool delimiter = parts[i].match != step.invert;
    const bool joins =
        pieces.size() > first && ((step.behavior == Behavior::merged_with_previous && delimiter && !before) ||
                                  (step.behavior == Behavior::merged_with_next && !delimiter && before) ||
                                  (step.behavior == Behavior::contiguous && delimiter == before));
    if (joins) {
      pieces.back() = joined(pieces.back(), parts[i].text);
    } else if (!delimiter || step.behavior != Behavior::removed) {
      pieces.push_back(parts[i].text);
    }
    before = delimiter;
  }
}

}  // namespace

Splitter::Splitter(const std::vector<SplitStep>& steps, const std::string& name, bool by_hand) {
  for (const SplitStep& step : steps) steps_.push_back({step, Regex(step.pattern, step.literal, name)});
  if (steps.size() != 1 || steps[0].literal || !by_hand) return;
  // The well-known patterns match all text, so these two behaviors keep every match as a piece.
  const SplitStep& only = steps[0];
  const bool keeps_matches =
      only.invert ? only.behavior == SplitStep::Behavior::removed : only.behavior == SplitStep::Behavior::isolated;
  if (keeps_matches) scanner_ = AsciiScanner::of(only.pattern);
}

Splitter::Pieces::Pieces(const Splitter& splitter, std::string_view text) : splitter_(splitter), text_(text) {}

bool Splitter::Pieces::next(std::vector<std::string_view>& pieces) {
  pieces.clear();
  if (splitter_.steps_.empty()) {
    if (!text_.empty()) pieces.push_back(text_);
    text_ = {};
  }
  while (pieces.empty() && (at_ < valid_.size() || !text_.empty())) {
    if (at_ < valid_.size()) {
      next_scanned(pieces);
      continue;
    }
    const size_t length = valid_prefix(text_);
    const std::string_view valid = text_.substr(0, length);
    text_.remove_prefix(length);
    if (splitter_.scanner_) {
      valid_ = valid;
      at_ = 0;
      search_.reset();
    } else {
      splitter_.split_valid(valid, 0, pieces);
    }
    if (length > 0) continue;
    size_t stray = 0;
    while (stray < text_.size() && first_code_point(text_.substr(stray, 4)).length == 0) ++stray;
    pieces.push_back(text_.substr(0, stray));
    text_.remove_prefix(stray);
  }
  return !pieces.empty();
}

void Splitter::Pieces::next_scanned(std::vector<std::string_view>& pieces) {
  constexpr size_t kBatch = 512;  // small enough for the L1 cache
  while (at_ < valid_.size() && pieces.size() < kBatch) {
    size_t length = splitter_.scanner_(valid_.substr(at_));
    if (length == 0) {
      if (!search_) search_.emplace(splitter_.steps_[0].regex, valid_);
      length = search_->next(at_).end - at_;
    }
    pieces.push_back(valid_.substr(at_, length));
    at_ += length;
  }
}

void Splitter::split_valid(std::string_view text, size_t step, std::vector<std::string_view>& pieces) const {
  if (text.empty()) return;
  if (step == steps_.size()) {
    pieces.push_back(text);
    return;
  }
  std::vector<std::string_view> cut;
  apply(parts_of(text, steps_[step].regex), steps_[step].what, cut);
  for (const std::string_view piece : cut) split_valid(piece, step + 1, pieces);
}

}  // namespace lamina::text
