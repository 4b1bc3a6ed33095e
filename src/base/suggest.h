#pragma once

#include <string>
#include <vector>

namespace lamina {

/// "did you mean generate?" with the nearest candidate, or else with the first few that begin with `given`; empty if
/// there are none.
std::string did_you_mean(const std::string& given, const std::vector<std::string>& candidates);

}  // namespace lamina
