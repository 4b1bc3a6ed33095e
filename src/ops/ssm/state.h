#pragma once

#include "lamina/ops/launch.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// An optional argument in the accumulation type of `like`.
inline Tensor accumulated(const Tensor& tensor, DType like) {
  return tensor.defined() ? as_accumulation(tensor, like) : Tensor();
}

/// The state that a scan starts from, where one is given.
inline void check_initial_state(const char* op, const Tensor& state, const Shape& shape) {
  if (!state.defined()) return;
  check_floating(op, "initial_state", state);
  check_shape(op, "initial_state", state, shape);
}

/// The state that a step over `input` moves on; `initial_state` is the scan's option, which a step has no use for.
inline void check_step_state(const char* op, const Tensor& state, const Shape& shape, const Tensor& input,
                             const Tensor& initial_state) {
  LAMINA_CHECK(!initial_state.defined(), op, ": initial_state is given; the state is an argument of its own");
  check_shape(op, "state", state, shape);
  check_dtype(op, "state", state, accumulation_type(input.dtype()));
  check_same_device(op, {input, state});
}

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
