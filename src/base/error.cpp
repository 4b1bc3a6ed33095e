#include "lamina/base/error.h"

#include <algorithm>
#include <vector>

namespace lamina {

namespace {

/// Edit distance: the number of insertions, deletions, substitutions and swaps of neighboring characters.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> table(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) table[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) table[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      table[i][j] = std::min({substitution, table[i - 1][j] + 1, table[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
      }
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

bool is_near(const std::string& given, const std::string& candidate) {
  return edit_distance(given, candidate) <= std::max<size_t>(1, candidate.size() / 3);
}

std::string nearest_of(const std::string& given, const std::vector<std::string>& candidates) {
  std::string nearest;
  for (const std::string& candidate : candidates) {
    if (!is_near(given, candidate)) continue;
    if (nearest.empty() || edit_distance(given, candidate) < edit_distance(given, nearest)) nearest = candidate;
  }
  return nearest;
}

}  // namespace lamina
