#include "lamina/base/suggest.h"

#include "lamina/base/error.h"

namespace lamina {

std::string did_you_mean(const std::string& given, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;
  constexpr size_t kMost = 6;
  const std::string nearest = nearest_of(given.substr(0, kLongest), candidates);
  if (!nearest.empty()) return "did you mean " + nearest + "?";
  std::string names;
  size_t count = 0;
  for (const std::string& candidate : candidates) {
    if (given.size() < 2 || count == kMost || !candidate.starts_with(given)) continue;
    names += (count++ == 0 ? "" : ", ") + candidate;
  }
  if (count == 0) return {};
  return (count == 1 ? "did you mean " : "did you mean one of ") + names + "?";
}

}  // namespace lamina
