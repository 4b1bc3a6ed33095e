#include "lamina/text/grammar/code_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>

#include "lamina/text/utf8.h"

namespace lamina::text::grammar {

void CodeSet::add(char32_t first, char32_t last) {
  constexpr char32_t kFirstSurrogate = 0xD800;
  constexpr char32_t kLastSurrogate = 0xDFFF;
  last = std::min(last, kLastCodePoint);
  if (first < kFirstSurrogate) insert(first, std::min<char32_t>(last, kFirstSurrogate - 1));
  if (last > kLastSurrogate) insert(std::max<char32_t>(first, kLastSurrogate + 1), last);
}

void CodeSet::insert(char32_t first, char32_t last) {
  if (first > last) return;
  auto begin = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.second + 1 >= first; });
  auto end = begin;
  while (end != ranges_.end() && end->first <= last + 1) {
    first = std::min(first, end->first);
    last = std::max(last, end->second);
    ++end;
  }
  begin = ranges_.erase(begin, end);
  ranges_.insert(begin, {first, last});
}

void CodeSet::add(const CodeSet& other) {
  for (const Range& range : other.ranges_) insert(range.first, range.second);
}

CodeSet CodeSet::complement() const {
  CodeSet result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.add(next, range.first - 1);
    next = range.second + 1;
  }
  if (next <= kLastCodePoint) result.add(next, kLastCodePoint);
  return result;
}

CodeSet CodeSet::intersect(const CodeSet& other) const {
  CodeSet result;
  for (size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const char32_t first = std::max(ranges_[i].first, other.ranges_[j].first);
    const char32_t last = std::min(ranges_[i].second, other.ranges_[j].second);
    if (first <= last) result.ranges_.emplace_back(first, last);
    ranges_[i].second < other.ranges_[j].second ? ++i : ++j;
  }
  return result;
}

bool CodeSet::contains(char32_t value) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), value,
                                      [](char32_t v, const Range& range) { return v < range.first; });
  return after != ranges_.begin() && std::prev(after)->second >= value;
}

std::optional<CodeSet> unicode_category(std::string_view name) {
  static const std::map<std::string, CodeSet, std::less<>> kCategories = [] {
    std::map<std::string, CodeSet, std::less<>> sets;
    char32_t first = 0;
    std::string_view current = utf8proc_category_string(0);
    for (char32_t value = 1; value <= kLastCodePoint + 1; ++value) {
      const std::string_view next =
          value > kLastCodePoint ? "" : utf8proc_category_string(static_cast<utf8proc_int32_t>(value));
      if (next == current) continue;
      sets[std::string(current)].add(first, value - 1);
      sets[std::string(current.substr(0, 1))].add(first, value - 1);
      first = value;
      current = next;
    }
    sets.erase("Cs");  // surrogates are not characters
    return sets;
  }();
  const auto found = kCategories.find(name);
  if (found == kCategories.end()) return {};
  return found->second;
}

void append_utf8_sequences(char32_t first, char32_t last, std::vector<Utf8Sequence>& sequences) {
  // Split the range where the encoded length changes.
  for (const char32_t limit : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
    if (first <= limit && last > limit) {
      append_utf8_sequences(first, limit, sequences);
      append_utf8_sequences(limit + 1, last, sequences);
      return;
    }
  }
  // Split until the lower bits of a range are either equal at both ends, or complete (00…0 to 11…1).
  for (int bits = 6; bits <= 18 && last > 0x7F; bits += 6) {
    const char32_t low = (char32_t{1} << bits) - 1;
    if ((first & ~low) == (last & ~low)) break;
    if ((first & low) != 0) {
      append_utf8_sequences(first, first | low, sequences);
      append_utf8_sequences((first | low) + 1, last, sequences);
      return;
    }
    if ((last & low) != low) {
      append_utf8_sequences(first, (last & ~low) - 1, sequences);
      append_utf8_sequences(last & ~low, last, sequences);
      return;
    }
  }
  std::string least;
  std::string greatest;
  append_utf8(least, first);
  append_utf8(greatest, last);
  Utf8Sequence sequence;
  sequence.length = static_cast<int>(least.size());
  for (size_t i = 0; i < least.size(); ++i) {
    sequence.bytes[i] = {static_cast<uint8_t>(least[i]), static_cast<uint8_t>(greatest[i])};
  }
  sequences.push_back(sequence);
}

}  // namespace lamina::text::grammar
