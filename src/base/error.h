#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lamina {

/// Thrown for every failure. The message says what was given, what was expected and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Joins its arguments with operator<<.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// True if the edit distance is small enough to suggest `candidate` for the mistyped `given`.
bool is_near(const std::string& given, const std::string& candidate);

/// The near candidate with the fewest edits to `given`, or an empty string if none is near.
std::string nearest_of(const std::string& given, const std::vector<std::string>& candidates);

}  // namespace lamina

/// Throws Error with the joined message if `condition` is false. The message is built only in that case.
#define LAMINA_CHECK(condition, ...)                                     \
  do {                                                                   \
    if (!(condition)) throw ::lamina::Error(::lamina::str(__VA_ARGS__)); \
  } while (false)
