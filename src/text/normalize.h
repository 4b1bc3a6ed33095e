#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// Steps a tokenizer may have. Files in use have fewer than ten.
inline constexpr size_t kMaxNormalizers = 256;

/// The text after the steps. Bytes that are not UTF-8 stay as they are; Unicode's normal forms apply to the text
/// between them. A step whose output exceeds 64 times the text plus 4096 bytes is an Error, because steps that multiply
/// could fill any memory. Unicode's own forms grow a text at most 11 times. `name` goes into the message.
std::string normalized(std::string_view text, const std::vector<NormalizerStep>& steps, const std::string& name);

}  // namespace lamina::text
