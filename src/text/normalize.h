#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// Maximum number of normalizer steps. Real files have fewer than ten.
inline constexpr size_t kMaxNormalizers = 256;

/// Applies the normalizer steps. Invalid UTF-8 bytes stay unchanged; Unicode normal forms apply to the text between
/// them. A step whose output exceeds 64 times the text plus 4096 bytes is an Error: a chain of growing steps could
/// exhaust memory (Unicode's own forms grow text at most 11 times). `name` names the file in messages.
std::string normalized(std::string_view text, const std::vector<NormalizerStep>& steps, const std::string& name);

}  // namespace lamina::text
