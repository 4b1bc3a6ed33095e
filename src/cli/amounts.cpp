#include "lamina/cli/amounts.h"

#include <vector>

#include "lamina/base/error.h"

namespace lamina::cli {
namespace {

/// Parses a number with an optional unit. Returns 0 if either is invalid.
double amount(const std::string& text, const std::vector<std::pair<std::string, double>>& units) {
  size_t used = 0;
  double number = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    return 0;
  }
  for (const auto& [unit, factor] : units) {
    if (text.substr(used) == unit) return number * factor;
  }
  return 0;
}

}  // namespace

int64_t bytes_from(const std::string& text, const std::string& option) {
  const double bytes =
      amount(text, {{"", 1}, {"B", 1}, {"KB", 1e3}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}});
  LAMINA_CHECK(bytes >= 1 && bytes < 9e18, option, " ", text, ": expected a size such as 5GB, 300MB or 1000000");
  return static_cast<int64_t>(bytes);
}

double count_from(const std::string& text, const std::string& option) {
  const double count = amount(text, {{"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"G", 1e9}, {"T", 1e12}});
  LAMINA_CHECK(count >= 1 && count < 9e18, option, " ", text, ": expected a number such as 300k, 10M, 1.5B or 1000000");
  return count;
}

}  // namespace lamina::cli
