#pragma once

#include <string>
#include <vector>

namespace lamina {

/// "did you mean generate?" with the nearest candidate. If none is near, lists the first few candidates that begin with
/// `given`. Empty if there are none.
std::string did_you_mean(const std::string& given, const std::vector<std::string>& candidates);

}  // namespace lamina
