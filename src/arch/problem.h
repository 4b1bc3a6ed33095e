#pragma once

#include <string>
#include <vector>

#include "lamina/base/error.h"

namespace lamina::arch {

/// One problem of an architecture file.
struct Problem {
  std::string rule;     ///< id of the rule, or "read" for syntax and type errors
  std::string path;     ///< layers[0].pattern[1].ffn.d_ff; empty for the whole file
  std::string message;  ///< what was given and what was expected
  std::string hint;     ///< what to do
};

/// All problems, one per line.
std::string to_text(const std::vector<Problem>& problems);

/// An invalid architecture, with all of its problems.
class SpecError : public Error {
 public:
  /// The message begins with `what_it_is` and lists all problems.
  SpecError(const std::string& what_it_is, std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }  ///< all of them, in the order of the file

 private:
  std::vector<Problem> problems_;
};

}  // namespace lamina::arch
