#include "lamina/infer/engine/draft_length.h"

#include <algorithm>
#include <cmath>

namespace lamina::infer {
namespace {

/// With a lower acceptance, drafts cost more than they save. Drafting then pauses for kPause tokens, and one more is
/// tried.
constexpr double kWorthDrafting = 0.25;
constexpr int64_t kPause = 24;

}  // namespace

void DraftLength::measure(int64_t drafted, int64_t accepted) {
  if (drafted == 0) return;
  // Tokens after the first wrong one tell nothing. So there were accepted + 1 trials, unless all tokens were right.
  const int64_t trials = std::min(drafted, accepted + 1);
  for (int64_t i = 0; i < trials; ++i) acceptance_ += 0.1 * ((i < accepted ? 1.0 : 0.0) - acceptance_);
  if (acceptance_ < kWorthDrafting) {
    pause_ = kPause;
    acceptance_ = kWorthDrafting + 0.05;  // after the pause, a single draft decides
  }
}

int64_t DraftLength::length() const {
  if (pause_ > 0) return 0;
  // The expected number of right tokens in a row, rounded up.
  const double run = acceptance_ / std::max(1e-3, 1 - acceptance_);
  return std::clamp<int64_t>(std::llround(std::ceil(run)), 1, most_);
}

}  // namespace lamina::infer
