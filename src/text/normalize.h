#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/charsmap.h"
#include "lamina/text/regex.h"
#include "lamina/text/spec.h"

namespace lamina::text {

/// Maximum number of normalizer steps. Real files have fewer than ten.
inline constexpr size_t kMaxNormalizers = 256;

/// A sequence of normalizer steps, ready to run. Immutable after construction, so threads may share one.
class Normalizer {
 public:
  /// Compiles the expressions and checks the character maps. `name` is the file's name in messages.
  Normalizer(std::vector<NormalizerStep> steps, const std::string& name);
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;

  bool empty() const { return steps_.empty(); }
  /// Applies the steps. Invalid UTF-8 bytes stay unchanged, except in cleaning steps; Unicode normal forms apply to the
  /// text between them. A step whose output exceeds 64 times the text plus 4096 bytes is an Error, because a chain of
  /// growing steps could exhaust memory. Unicode's own forms grow a text at most 11 times.
  std::string operator()(std::string_view text) const;

 private:
  struct Step {
    NormalizerStep what;
    std::optional<Regex> regex;
    std::optional<Charsmap> charsmap;
  };
  std::vector<Step> steps_;
  std::string name_;
};

/// Applies the steps to a single text. `name` is the file's name in messages.
std::string normalized(std::string_view text, const std::vector<NormalizerStep>& steps, const std::string& name);

}  // namespace lamina::text
