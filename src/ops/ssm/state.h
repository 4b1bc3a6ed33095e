#pragma once

#include "lamina/ops/launch.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// An optional argument, converted to the accumulation type of `like`.
inline Tensor accumulated(const Tensor& tensor, DType like) {
  return tensor.defined() ? as_accumulation(tensor, like) : Tensor();
}

/// Checks the initial state of a scan, if there is one.
inline void check_initial_state(const char* op, const Tensor& state, const Shape& shape) {
  if (!state.defined()) return;
  check_floating(op, "initial_state", state);
  check_shape(op, "initial_state", state, shape);
}

/// Checks the state that a decoding step updates, given the step's `input`. The scan's `initial_state` option must not
/// be set.
inline void check_step_state(const char* op, const Tensor& state, const Shape& shape, const Tensor& input,
                             const Tensor& initial_state) {
  LAMINA_CHECK(!initial_state.defined(), op,
               ": initial_state is given; pass the state as the `state` argument instead");
  check_shape(op, "state", state, shape);
  check_dtype(op, "state", state, accumulation_type(input.dtype()));
  check_same_device(op, {input, state});
}

/// The state of a decoding step, as a contiguous tensor that a kernel updates. If the state is not contiguous, this is
/// a copy, which finish() writes back.
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
