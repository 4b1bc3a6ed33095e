#include "lamina/base/error.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lamina {

bool is_near(const std::string& given, const std::string& candidate) {
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
  return row.back() <= std::max<size_t>(1, candidate.size() / 3);
}

}  // namespace lamina
