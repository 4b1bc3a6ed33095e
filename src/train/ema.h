#pragma once

#include <vector>

#include "lamina/train/optimizer.h"

namespace lamina::train {

/// Exponential moving average (EMA) of the weights in f32: e ← d·e + (1 − d)·p, with d = min(decay, (1 + n) / (10 + n))
/// at update n. The small d of the first updates lets the initial weights fade quickly.
class Ema {
 public:
  Ema(const NamedTensors& parameters, double decay);

  /// Call this after update number `updates` (from 1). Reads the current parameters.
  void update(int64_t updates);

  /// The averaged weights, named like the parameters. The tensors are not copies.
  const NamedTensors& average() const { return average_; }

  /// RAII: replaces the parameters by the averages, and restores the exact original values on destruction. Parameters
  /// narrower than f32 hold the rounded average in between. A null `ema` does nothing.
  class InPlace {
   public:
    explicit InPlace(Ema* ema);
    InPlace(const InPlace&) = delete;
    InPlace& operator=(const InPlace&) = delete;
    ~InPlace();

   private:
    Ema* ema_;
    std::vector<Tensor> kept_;  ///< original values of the parameters
  };

 private:
  NamedTensors parameters_;
  NamedTensors average_;
  double decay_;
};

}  // namespace lamina::train
