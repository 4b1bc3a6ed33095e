#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lamina {

/// Every failure the library reports. The message says what was given, what was expected and what to do.
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

/// Edit distance is small enough to suggest `candidate` for the mistyped `given`.
bool is_near(const std::string& given, const std::string& candidate);

/// The near candidate with the fewest edits to `given`, or an empty string where none is near.
std::string nearest_of(const std::string& given, const std::vector<std::string>& candidates);

}  // namespace lamina

/// Throws Error with the joined message when `condition` is false; the message is built only then.
#define LAMINA_CHECK(condition, ...)                                     \
  do {                                                                   \
    if (!(condition)) throw ::lamina::Error(::lamina::str(__VA_ARGS__)); \
  } while (false)
