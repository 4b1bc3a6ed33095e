#include <algorithm>
#include <cstdio>

#include "lamina/lab/stretch/stretch.h"

namespace lamina::lab {
namespace {

constexpr size_t kNameWidth = 30;

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[128];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string cell(const std::optional<double>& perplexity) {
  if (!perplexity) return format("%10s", "-");
  return *perplexity < 1000 ? format("%10.3f", *perplexity) : format("%10.2e", *perplexity);
}

std::string head(const std::string& title, const StretchResult& result) {
  std::string text = title;
  text.resize(std::max(kNameWidth, title.size()), ' ');
  for (const int64_t length : result.lengths) text += format("%10lld", static_cast<long long>(length));
  return text + "\n";
}

/// Mean over depths; empty if any is missing.
std::optional<double> mean_of_known(const std::vector<std::optional<double>>& numbers) {
  double sum = 0;
  for (const auto& number : numbers) {
    if (!number) return {};
    sum += *number;
  }
  return sum / static_cast<double>(numbers.size());
}

std::string passkeys(const StretchResult& result) {
  std::string text = "\n" + head("passkeys found, per cent", result);
  for (const StretchRow& row : result.rows) {
    if (row.passkey.empty()) continue;
    text += format("%-30s", row.label.c_str());
    for (const auto& numbers : row.passkey) {
      const std::optional<double> mean = mean_of_known(numbers);
      text += mean ? format("%10.0f", 100 * *mean) : format("%10s", "-");
    }
    text += "\n";
  }
  text += format("\n%-30s", "by depth, longest length");
  for (const double depth : result.depths) text += format("%10.2f", depth);
  text += "\n";
  for (const StretchRow& row : result.rows) {
    if (row.passkey.empty() || !mean_of_known(row.passkey.back())) continue;
    text += format("%-30s", row.label.c_str());
    for (const auto& number : row.passkey.back()) text += format("%10.0f", 100 * *number);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string stretch_table(const StretchResult& result) {
  std::string text;
  const auto part = [&](const char* title, auto numbers_of) {
    text += (text.empty() ? "" : "\n") + head(title, result);
    for (const StretchRow& row : result.rows) {
      text += format("%-30s", row.label.c_str());
      for (const auto& perplexity : numbers_of(row)) text += cell(perplexity);
      text += row.cannot.empty() ? "\n" : "  " + row.cannot + "\n";
    }
  };
  part("perplexity, side by side", [](const StretchRow& row) { return row.side_by_side; });
  part("perplexity, sliding", [](const StretchRow& row) { return row.sliding; });
  const bool asked =
      std::any_of(result.rows.begin(), result.rows.end(), [](const StretchRow& row) { return !row.passkey.empty(); });
  return asked ? text + passkeys(result) : text;
}

}  // namespace lamina::lab
