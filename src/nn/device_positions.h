#pragma once

#include "lamina/ops/elementwise/increment.h"
#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Position counters of each batch row, kept in device memory. A decode step replayed from a CUDA graph reads and
/// increments them there, because the host cannot pass new arguments to a captured graph.
class DevicePositions {
 public:
  DevicePositions(int64_t batch, const Device& device) : counters_(Tensor::zeros({2, batch}, DType::i64, device)) {}

  /// Row b's next token has position places[b].
  void set(const std::vector<int64_t>& places) {
    std::vector<int64_t> values = places;
    for (const int64_t place : places) values.push_back(place + 1);
    counters_.copy_(Tensor::from(values, counters_.shape(), Device::cpu(1)));
  }
  void advance() { ops::increment_(counters_); }
  /// The tensor that advance() increments, for a kernel that increments it itself.
  Tensor counters() const { return counters_; }

  /// [batch] i64: position of each row's next token.
  Tensor places() const { return line(0); }
  /// [batch] i64: number of tokens in each row, including the next one.
  Tensor lengths() const { return line(1); }

 private:
  Tensor line(int64_t index) const { return counters_.slice(0, index, 1).reshape({counters_.dim(1)}); }

  Tensor counters_;
};

}  // namespace lamina::nn
