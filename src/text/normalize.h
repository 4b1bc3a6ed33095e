#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// The text after the steps. Bytes that are no UTF-8 stay as they are; Unicode's normal forms are taken of what lies
/// between them.
std::string normalized(std::string_view text, const std::vector<NormalizerStep>& steps);

}  // namespace lamina::text
