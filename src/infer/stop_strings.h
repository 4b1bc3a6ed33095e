#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lamina::infer {

/// Passes text through, in pieces of any size, up to the first stop string. Holds back text that may be the beginning
/// of a stop string, so that no part of a stop string is ever shown.
class StopStrings {
 public:
  /// An empty stop string is an Error.
  explicit StopStrings(std::vector<std::string> stops = {});

  /// Adds text. Returns the text that may be shown now.
  std::string push(std::string_view text);
  /// Ends the text. Returns the text that was held back.
  std::string finish();
  /// Whether a stop string was found. No text after it is shown.
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace lamina::infer
