#include "lamina/ops/sampling/sample_unfiltered.h"

#include <cmath>

namespace lamina::ops {

int64_t sample_unfiltered(std::span<double> logits, const std::array<uint32_t, 4>& words) {
  double most = -INFINITY;
  size_t likeliest = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] > most)) continue;
    most = logits[id];
    likeliest = id;
  }
  if (most == -INFINITY) return -1;
  double sum = 0;
  for (double& logit : logits) {  // becomes a weight, with the operations of normalise()
    logit = logit == most ? 1 : static_cast<double>(std::exp(static_cast<float>(logit - most)));
    sum += logit;
  }
  const uint64_t word = (uint64_t{words[0]} << 32U) | words[1];
  double left = static_cast<double>(word >> 11U) * 0x1p-53;
  for (size_t id = 0; id < logits.size(); ++id) {
    if ((left -= logits[id] / sum) < 0) return static_cast<int64_t>(id);
  }
  return static_cast<int64_t>(likeliest);  // only if rounding errors left a remainder
}

}  // namespace lamina::ops
