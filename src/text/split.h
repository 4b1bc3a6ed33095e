#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/ascii_scanner.h"
#include "lamina/text/regex.h"
#include "lamina/text/spec.h"

namespace lamina::text {

/// Cuts text into the pieces that are merged apart, by one pattern after the other.
class Splitter {
 public:
  /// `by_hand`: known patterns are scanned without their regular expression where that gives the same.
  Splitter(const std::vector<SplitStep>& steps, const std::string& name, bool by_hand = true);

  /// The pieces of a text, in order, some at a time. Bytes that are no UTF-8 match no pattern: each run of them is a
  /// piece.
  class Pieces {
   public:
    Pieces(const Splitter& splitter, std::string_view text);
    /// Replaces `pieces` by the next ones; false when there are none.
    bool next(std::vector<std::string_view>& pieces);

   private:
    void next_scanned(std::vector<std::string_view>& pieces);

    const Splitter& splitter_;
    std::string_view text_;  // what is left behind the well-formed part in work
    std::string_view valid_;
    size_t at_ = 0;  // in valid_
    std::optional<Regex::Search> search_;
  };

 private:
  struct Step {
    SplitStep what;
    Regex regex;
  };
  void split_valid(std::string_view text, size_t step, std::vector<std::string_view>& pieces) const;

  std::vector<Step> steps_;
  AsciiScanner scanner_;  // of the only step
};

}  // namespace lamina::text
