#include "lamina/train/peak_share.h"

#include <algorithm>
#include <utility>

namespace lamina::train {

PeakShare::PeakShare(std::function<double()> measure, int most)
    : measure_(std::move(measure)), left_(most - 1), peak_(measure_()) {}

std::optional<double> PeakShare::of(double rate) {
  for (; rate > peak_ && left_ > 0; --left_) peak_ = std::max(peak_, measure_());
  if (rate > peak_ || rate <= 0) return {};
  return rate / peak_;
}

}  // namespace lamina::train
