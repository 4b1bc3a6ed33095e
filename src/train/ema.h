#pragma once

#include <vector>

#include "lamina/train/optimizer.h"

namespace lamina::train {

/// An average of the weights over the updates, in f32: e ← d·e + (1 − d)·p with d = min(decay, (1 + n) / (10 + n)) at
/// update n, so that the first updates do not hang on the initial weights.
class Ema {
 public:
  Ema(const std::vector<NamedTensor>& parameters, double decay);

  /// After update `updates` (from 1), with the parameters as they are now.
  void update(int64_t updates);

  /// The average under the parameters' names; the tensors are the average's own.
  const std::vector<NamedTensor>& average() const { return average_; }

  /// Exchanges averages and parameters, for an evaluation, and back. Parameters of a narrower type get the average
  /// rounded, and their own bits back.
  void swap_in();
  void swap_out();

 private:
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> average_;
  std::vector<Tensor> kept_;  ///< the parameters' own values while the averages are in
  double decay_;
};

}  // namespace lamina::train
