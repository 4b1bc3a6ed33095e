#pragma once

#include <string>
#include <vector>

#include "lamina/base/error.h"

namespace lamina::arch {

/// One thing wrong with an architecture file.
struct Problem {
  std::string rule;     ///< id of the rule, or "read" for what could not be read
  std::string path;     ///< layers[0].pattern[1].ffn.d_ff; empty for the whole
  std::string message;  ///< what was given and what was expected
  std::string hint;     ///< what to do
};

/// Every problem found, one line each.
std::string to_text(const std::vector<Problem>& problems);

/// An architecture that cannot be used, with everything that is wrong with it.
class SpecError : public Error {
 public:
  SpecError(const std::string& what_it_is, std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

}  // namespace lamina::arch
