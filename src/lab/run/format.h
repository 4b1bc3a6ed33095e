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

}  // namespace lamina::lab
