#include "lamina/cli/text_input.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <vector>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/text/utf8.h"

namespace lamina::cli {

std::string read_stdin() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

std::string read_input(const std::string& path) {
  return path == "-" ? read_stdin() : is_pipe(path) ? read_pipe(path) : read_text(path);
}

namespace {

/// Whether there is more than one character.
bool is_word(const std::string& entry) {
  return std::count_if(entry.begin(), entry.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }) > 1;
}

}  // namespace

void report_unknown(const std::string& source, const text::UnknownCharacters& unknown) {
  if (unknown.counts.empty()) return;
  // Tokenizers of words have no token for a word although they may have one for each of its characters.
  const bool words =
      std::any_of(unknown.counts.begin(), unknown.counts.end(), [](const auto& entry) { return is_word(entry.first); });
  std::vector<std::pair<std::string, int64_t>> rows(unknown.counts.begin(), unknown.counts.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    const std::string& entry = rows[i].first;
    list += str(i == 0 ? "" : ", ", is_word(entry) ? str("'", entry, "'") : text::name_of_first(entry), " (",
                rows[i].second, ")");
  }
  if (rows.size() > kShown) list += str(" and ", rows.size() - kShown, " others");
  const int64_t total = unknown.total();
  const std::string message =
      str("lamina: ", source, ": ", total, words ? " word" : " character", total == 1 ? " is" : "s are",
          " not in the vocabulary and ", total == 1 ? "was " : "were ",
          unknown.replaced ? "replaced by the unknown token: " : "skipped: ", list,
          "; a tokenizer with a byte fallback (char+bytes) reads any text\n");
  std::fputs(message.c_str(), stderr);
}

}  // namespace lamina::cli
