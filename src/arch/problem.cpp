#include "lamina/arch/problem.h"

#include <utility>

namespace lamina::arch {

std::string to_text(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    text += "\n  ";
    if (!problem.path.empty()) text += problem.path + ": ";
    text += problem.message;
    if (!problem.hint.empty()) text += "; " + problem.hint;
    if (problem.rule != "read") text += " [" + problem.rule + "]";
  }
  return text;
}

SpecError::SpecError(const std::string& what_it_is, std::vector<Problem> problems)
    : Error(str(what_it_is, ": ", problems.size(), problems.size() == 1 ? " problem" : " problems", to_text(problems))),
      problems_(std::move(problems)) {}

}  // namespace lamina::arch
