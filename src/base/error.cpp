#include "lamina/base/error.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lamina {

namespace {

size_t edit_distance(const std::string& given, const std::string& candidate) {
  std::vector<size_t> row(candidate.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < given.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < candidate.size(); ++j) {
      const size_t substitution = diagonal + (given[i] == candidate[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitution, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
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
