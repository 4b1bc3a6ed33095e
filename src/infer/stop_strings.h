#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lamina::infer {

/// Lets text through up to the first of some stop strings, which come in pieces of any size. What could be the
/// beginning of one is held back until it is known, so that no part of a stop string is ever shown.
class StopStrings {
 public:
  /// An empty stop string is an Error.
  explicit StopStrings(std::vector<std::string> stops = {});

  /// More text → what of it, and of what was held back, may be shown.
  std::string push(std::string_view text);
  /// Nothing more comes: what was held back after all.
  std::string finish();
  /// A stop string came; nothing behind it is shown.
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace lamina::infer
