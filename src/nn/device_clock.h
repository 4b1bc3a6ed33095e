#pragma once

#include "lamina/ops/elementwise/count_on.h"
#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// How far each row of a batch is, in the device's memory: where a step that a GPU repeats from its record finds it,
/// and counts it on.
class DeviceClock {
 public:
  DeviceClock(int64_t batch, const Device& device) : counters_(Tensor::zeros({2, batch}, DType::i64, device)) {}

  /// Row b's next token is to go to places[b].
  void set(const std::vector<int64_t>& places) {
    std::vector<int64_t> values = places;
    for (const int64_t place : places) values.push_back(place + 1);
    counters_.copy_(Tensor::from(values, counters_.shape(), Device::cpu(1)));
  }
  void advance() { ops::count_on(counters_); }
  /// What advance() counts, for an operator that does it on its way.
  Tensor counters() const { return counters_; }

  /// [batch] i64: where the next token of each row goes.
  Tensor places() const { return line(0); }
  /// [batch] i64: tokens of each row, the next one among them.
  Tensor lengths() const { return line(1); }

 private:
  Tensor line(int64_t index) const { return counters_.slice(0, index, 1).reshape({counters_.dim(1)}); }

  Tensor counters_;
};

}  // namespace lamina::nn
