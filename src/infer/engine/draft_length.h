#pragma once

#include <cstdint>

namespace lamina::infer {

/// Chooses how many tokens of an answer to draft at once, from the share of drafted tokens that were right. Drafting
/// pauses if that share is too low.
class DraftLength {
 public:
  explicit DraftLength(int64_t most) : most_(most) {}

  /// Reports that `accepted` of `drafted` tokens were right.
  void measure(int64_t drafted, int64_t accepted);
  /// Reports a new token of the answer. Shortens a pause by one token.
  void advance() { pause_ -= pause_ > 0 ? 1 : 0; }
  /// Maximum length of the next draft. 0 while drafting pauses.
  int64_t length() const;
  double acceptance() const { return acceptance_; }

 private:
  int64_t most_;
  double acceptance_ = 0.6;  ///< moving average of the probability that a drafted token is right
  int64_t pause_ = 0;        ///< tokens to wait before the next draft
};

}  // namespace lamina::infer
