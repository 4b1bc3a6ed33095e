#include "lamina/search/chunks.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "lamina/base/error.h"
#include "lamina/search/words.h"

namespace lamina::search {
namespace {

struct Place {
  size_t begin = 0;
  size_t end = 0;
  bool starts_paragraph = false;
};

bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool has_blank_line(std::string_view between) {
  int newlines = 0;
  for (const char c : between) {
    if (c == '\n') ++newlines;
    if (!is_white(c)) newlines = 0;
    if (newlines == 2) return true;
  }
  return false;
}

std::vector<Place> places_of(std::string_view text) {
  std::vector<Place> places;
  each_word(text, [&](const Word& word) {
    const size_t before = places.empty() ? word.begin : places.back().end;
    places.push_back({word.begin, word.end, has_blank_line(text.substr(before, word.begin - before))});
  });
  return places;
}

/// The byte range of words [first, last), including punctuation next to them.
Chunk range_of(std::string_view text, const std::vector<Place>& places, size_t first, size_t last) {
  Chunk chunk{places[first].begin, last < places.size() ? places[last].begin : text.size()};
  const size_t before = first == 0 ? 0 : places[first - 1].end;
  while (chunk.begin > before && !is_white(text[chunk.begin - 1])) --chunk.begin;
  if (last < places.size()) {  // punctuation directly before the next word belongs to that word
    while (chunk.end > places[last - 1].end && !is_white(text[chunk.end - 1])) --chunk.end;
  }
  while (chunk.end > places[last - 1].end && is_white(text[chunk.end - 1])) --chunk.end;
  return chunk;
}

}  // namespace

std::vector<Chunk> chunks_of(std::string_view text, const ChunkOptions& options) {
  LAMINA_CHECK(options.words >= 1 && options.overlap >= 0 && options.overlap < options.words, "passages of ",
               options.words, " words with an overlap of ", options.overlap,
               "; expected at least 1 word, and an overlap of 0 or more and less than that");
  const auto most = static_cast<size_t>(options.words);
  const std::vector<Place> places = places_of(text);
  std::vector<Chunk> chunks;
  for (size_t first = 0; first < places.size();) {
    size_t last = std::min(first + most, places.size());
    size_t next = last;
    if (last < places.size()) {
      size_t cut = last;
      while (cut > first + most / 2 && !places[cut].starts_paragraph) --cut;
      if (cut > first && places[cut].starts_paragraph) {
        next = last = cut;
      } else {
        next = last - static_cast<size_t>(options.overlap);
      }
    }
    chunks.push_back(range_of(text, places, first, last));
    if (last == places.size()) break;
    first = next;
  }
  return chunks;
}

std::string snippet_of(std::string_view text, std::string_view query, int64_t words) {
  const std::vector<std::string> wanted_words = words_of(query);
  const std::set<std::string> wanted(wanted_words.begin(), wanted_words.end());
  std::vector<Place> places;
  std::vector<std::string> hits;  // the folded word if it is in the query, otherwise empty
  each_word(text, [&](const Word& word) {
    places.push_back({word.begin, word.end, false});
    std::string folded(word.folded);
    hits.push_back(wanted.contains(folded) ? std::move(folded) : std::string());
  });
  if (places.empty()) return {};
  const auto width = static_cast<size_t>(std::max<int64_t>(words, 1));
  std::map<std::string, int> inside;
  size_t best = 0;
  size_t most = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!hits[i].empty()) ++inside[hits[i]];
    if (i >= width && !hits[i - width].empty() && --inside[hits[i - width]] == 0) inside.erase(hits[i - width]);
    if (inside.size() > most) {
      most = inside.size();
      best = i + 1 > width ? i + 1 - width : 0;
    }
  }
  // Shift the window to show some context after the last hit.
  best = std::min(best + (best > 0 ? width / 4 : 0), places.size() > width ? places.size() - width : 0);
  const size_t last = std::min(best + width, places.size());
  const Chunk range = range_of(text, places, best, last);
  std::string snippet = range.begin > 0 && best > 0 ? "…" : "";
  bool space = false;
  for (const char c : text.substr(range.begin, range.end - range.begin)) {
    const bool white = is_white(c);
    if (!white && space) snippet += ' ';
    space = white;
    if (!white) snippet += c;
  }
  if (last < places.size()) snippet += "…";
  return snippet;
}

}  // namespace lamina::search
