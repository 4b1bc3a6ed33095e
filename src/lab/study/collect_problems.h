#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lamina/arch/problem.h"

namespace lamina::lab {

/// Whether to add a message again that is already in the list for another path.
enum class Repeats : uint8_t { keep, drop };

/// Calls `body`. Adds an error that it throws to `problems`, with the prefix `path`, so that all mistakes are shown at
/// once.
template <class F>
void collect_problems(const std::string& path, Repeats repeats, std::vector<arch::Problem>& problems, const F& body) {
  const auto add = [&](arch::Problem problem) {
    const bool known = std::any_of(problems.begin(), problems.end(),
                                   [&](const arch::Problem& other) { return other.message == problem.message; });
    if (repeats == Repeats::keep || !known) problems.push_back(std::move(problem));
  };
  try {
    body();
  } catch (const arch::SpecError& error) {
    for (arch::Problem problem : error.problems()) {
      problem.path = problem.path.empty() ? path : path + ": " + problem.path;
      add(std::move(problem));
    }
  } catch (const Error& error) {
    add({"read", path, error.what(), ""});
  }
}

}  // namespace lamina::lab
