#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/ascii_scanner.h"
#include "lamina/text/regex.h"
#include "lamina/text/spec.h"

namespace lamina::text {

/// Splits text into the pieces that are encoded separately. Applies one pattern after the other.
class Splitter {
 public:
  /// `by_hand`: use the hand-written scanner for a well-known pattern if it gives the same result.
  Splitter(const std::vector<SplitStep>& steps, const std::string& name, bool by_hand = true);

  /// Iterates over the pieces of a text in order, in batches. Invalid UTF-8 matches no pattern; each run of it is one
  /// piece.
  class Pieces {
   public:
    Pieces(const Splitter& splitter, std::string_view text);
    /// Replaces `pieces` by the next batch. Returns false at the end.
    bool next(std::vector<std::string_view>& pieces);

   private:
    void next_scanned(std::vector<std::string_view>& pieces);

    const Splitter& splitter_;
    std::string_view text_;  // the text after valid_
    std::string_view valid_;
    size_t at_ = 0;  // position in valid_
    std::optional<Regex::Search> search_;
  };

 private:
  struct Step {
    SplitStep what;
    Regex regex;
  };
  void split_valid(std::string_view text, size_t step, std::vector<std::string_view>& pieces) const;

  std::vector<Step> steps_;
  AsciiScanner scanner_;  // scanner for the pattern, if there is only one step
};

}  // namespace lamina::text
