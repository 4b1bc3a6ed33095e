#include "lamina/text/split.h"

#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

struct Part {
  std::string_view text;
  bool match;
};

/// Matches and what lies between them, in order; nothing is empty.
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

/// The parts as the behaviour joins or drops them: "delimiters" are the matches, or with invert the others.
void apply(std::vector<Part> parts, const SplitStep& step, std::vector<std::string_view>& pieces) {
  using Behavior = SplitStep::Behavior;
  const size_t first = pieces.size();
  bool before = false;  // the part before was a delimiter
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

Splitter::Splitter(const std::vector<SplitStep>& steps, const std::string& name) {
  for (const SplitStep& step : steps) steps_.push_back({step, Regex(step.pattern, step.literal, name)});
}

void Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  if (steps_.empty()) {
    if (!text.empty()) pieces.push_back(text);
    return;
  }
  while (!text.empty()) {
    const size_t valid = valid_prefix(text);
    split_valid(text.substr(0, valid), 0, pieces);
    text.remove_prefix(valid);
    size_t stray = 0;
    while (stray < text.size() && first_code_point(text.substr(stray, 4)).length == 0) ++stray;
    if (stray > 0) pieces.push_back(text.substr(0, stray));
    text.remove_prefix(stray);
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
