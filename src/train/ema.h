#pragma once

#include <vector>

#include "lamina/train/optimizer.h"

namespace lamina::train {

/// Exponential moving average of the weights, in f32: e ← d·e + (1 − d)·p with d = min(decay, (1 + n) / (10 + n)) at
/// update n, so that the initial weights soon lose their influence.
class Ema {
 public:
  Ema(const std::vector<NamedTensor>& parameters, double decay);

  /// After update `updates` (from 1), with the parameters as they are now.
  void update(int64_t updates);

  /// The average under the parameters' names; the tensors are the average's own.
  const std::vector<NamedTensor>& average() const { return average_; }

  /// Puts the averages in place of the parameters for the lifetime of this object, even if an exception ends it.
  /// Narrower parameters hold the rounded average meanwhile and get their own bits back. Null: does nothing.
  class InPlace {
   public:
    explicit InPlace(Ema* ema);
    InPlace(const InPlace&) = delete;
    InPlace& operator=(const InPlace&) = delete;
    ~InPlace();

   private:
    Ema* ema_;
    std::vector<Tensor> kept_;  ///< the parameters' own values
  };

 private:
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> average_;
  double decay_;
};

}  // namespace lamina::train
