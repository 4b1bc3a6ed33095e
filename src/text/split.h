#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/regex.h"
#include "lamina/text/spec.h"

namespace lamina::text {

/// Cuts text into the pieces that are merged apart, by one pattern after the other.
class Splitter {
 public:
  Splitter(const std::vector<SplitStep>& steps, const std::string& name);

  /// Appends the pieces of `text`, in order. Bytes that are no UTF-8 match no pattern: each run of them is a piece.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Step {
    SplitStep what;
    Regex regex;
  };
  void split_valid(std::string_view text, size_t step, std::vector<std::string_view>& pieces) const;

  std::vector<Step> steps_;
};

}  // namespace lamina::text
