#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// A decoding state that a kernel updates through a dense tensor: the state itself where it is dense, else a copy that
/// finish() writes back.
class StateInPlace {
 public:
  StateInPlace(const char* op, Tensor& state) : state_(state), dense_(state.detach().contiguous()) {
    state.mark_written(op);
  }
  const Tensor& dense() const { return dense_; }
  void finish() {
    if (!dense_.shares_memory_with(state_)) state_.copy_(dense_);
  }

 private:
  Tensor& state_;
  Tensor dense_;
};

}  // namespace lamina::ops
