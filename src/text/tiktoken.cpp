#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "lamina/base/error.h"
#include "lamina/text/base64.h"
#include "lamina/text/formats.h"
#include "lamina/text/patterns.h"
#include "lamina/text/scored_merges.h"
#include "lamina/text/spec_build.h"

namespace lamina::text {
namespace {

struct Line {
  std::string bytes;
  int64_t rank = -1;
};
std::optional<Line> line_of(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || space == 0) return {};
  Line line;
  const auto bytes = from_base64(text.substr(0, space));
  const std::string_view number = text.substr(space + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), line.rank);
  if (!bytes || bytes->empty() || error != std::errc() || end != number.data() + number.size()) return {};
  line.bytes = *bytes;
  return line;
}

/// Removes the next line from `text` and returns it without its line break.
std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

const Pattern& pattern_of(const std::string& pattern, const std::string& name) {
  if (!pattern.empty()) return pattern_named(pattern);
  const std::string file = name.substr(name.find_last_of('/') + 1);
  for (const Pattern& known : patterns()) {
    if (file.find(known.name) != std::string::npos) return known;
  }
  throw Error(str(name,
                  ": holds ranks alone; say how text is cut and what the special tokens are (--pattern gpt2, "
                  "p50k, cl100k, o200k or llama3)"));
}

}  // namespace

bool is_tiktoken(std::string_view text) { return line_of(take_line(text)).has_value(); }

TokenizerSpec read_tiktoken(std::string_view text, const std::string& pattern, const std::string& name) {
  const Pattern& cut = pattern_of(pattern, name);
  TokenizerSpec spec;
  spec.ignore_merges = true;
  spec.splits.push_back({cut.regex});
  std::set<std::string> seen;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view source = take_line(text);
    if (source.empty()) continue;
    const auto line = line_of(source);
    LAMINA_CHECK(line, name, ": line ", number, " is \"", source.substr(0, 80),
                 "\", expected a token in base64, a space and a rank");
    const auto at = static_cast<size_t>(checked_id(line->rank, line->bytes, name));
    // Special tokens leave small gaps between ranks. A large gap means that this file is not a vocabulary.
    LAMINA_CHECK(at < 64 * static_cast<size_t>(number) + 1024, name, ": line ", number, " has the rank ", at);
    if (at >= spec.vocab.size()) spec.vocab.resize(at + 1);
    LAMINA_CHECK(spec.vocab[at].kind == VocabEntry::Kind::absent && seen.insert(line->bytes).second, name, ": line ",
                 number, ": the token or its rank ", at, " is there twice");
    spec.vocab[at] = {VocabEntry::Kind::ordinary, line->bytes};
  }
  std::vector<int32_t> ranks(spec.vocab.size());
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int32_t>(i);
  add_merges_by_rank(spec, ranks);
  for (const AddedToken& special : cut.specials) {
    const auto at = static_cast<size_t>(special.id);
    LAMINA_CHECK(at >= spec.vocab.size() || spec.vocab[at].kind == VocabEntry::Kind::absent, name, ": the pattern ",
                 cut.name, " has ", special.content, " as token ", at,
                 ", which the file has already; name another pattern");
    add_token(spec, special);
  }
  guess_eos(spec);
  return spec;
}

}  // namespace lamina::text
