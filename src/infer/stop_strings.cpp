#include "lamina/infer/stop_strings.h"

#include <algorithm>
#include <utility>

#include "lamina/base/error.h"

namespace lamina::infer {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    LAMINA_CHECK(!stop.empty(), "a stop string is empty and would end every text; give at least one character");
  }
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  // Hold back the longest suffix that may be the beginning of a stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (held_.ends_with(std::string_view(stop).substr(0, length))) keep = length;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace lamina::infer
