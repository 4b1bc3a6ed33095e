#pragma once

#include <cstdio>
#include <string>

namespace lamina::lab {

/// std::snprintf into a string of at most 127 characters.
template <class... Args>
std::string printed(const char* pattern, Args... args) {
  char text[128];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

inline std::string fixed(double value, int decimals) { return printed("%.*f", decimals, value); }

/// A share of 1 in percent: two digits below 10 %, whole percent above, for example "0.17 %", "2.3 %" and "119 %".
inline std::string percent_of(double share) { return printed(share < 0.1 ? "%.2g %%" : "%.0f %%", 100 * share); }

}  // namespace lamina::lab
