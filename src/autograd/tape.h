#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina {

class Tape;

namespace autograd {
struct State;
class Entry;
}  // namespace autograd

/// What an operator's backward function sees: saved tensors, gradients of its outputs, and where to put those of its
/// inputs. Runs with recording off.
class Backward {
 public:
  /// The i-th tensor given to record() as saved.
  const Tensor& saved(int i) const;
  /// Gradient of the i-th output, contiguous; zeros where nothing used that output.
  Tensor grad(int i = 0) const;
  /// The same as it arrived, which may be a view: for operators that walk by strides.
  Tensor strided_grad(int i) const;
  /// The same, contiguous, to be overwritten: its own memory where nobody else sees it, else a copy.
  Tensor grad_to_overwrite(int i = 0) const;
  /// Something downstream used the i-th output.
  bool has_grad(int i) const;
  /// The i-th input's gradient is wanted.
  bool needs(int i) const;
  /// Adds to the gradient of the i-th input; converted to that gradient's type. Moving an otherwise unused tensor in
  /// saves a copy.
  void add(int i, Tensor grad);
  /// The buffer that already holds the i-th input's gradient and may be added to in place (a product with beta = 1),
  /// or undefined: then use add().
  Tensor accumulator(int i) const;

 private:
  friend struct autograd::State;
  Backward(autograd::State& state, size_t node) : state_(state), node_(node) {}
  autograd::State& state_;
  size_t node_;
};

using BackwardFn = std::function<void(Backward&)>;

/// Records operators as they run and plays them backwards. Leaves are the tensors watched; everything computed from
/// them is followed while recording is on. A tape is used by one thread at a time.
class Tape {
 public:
  Tape();

  /// Makes `leaf` a leaf of this tape, and of no other. Its gradient is kept in `grad_dtype`, by default its own type:
  /// f32 for a bf16 weight lets many micro-batches add up without rounding.
  void watch(Tensor& leaf);
  void watch(Tensor& leaf, DType grad_dtype);

  /// Gradient of `loss` (one element) with respect to every leaf, added to what the leaves hold. Consumes the record:
  /// a second call on the same graph is an error unless `retain` kept it.
  void backward(const Tensor& loss, bool retain = false);
  /// The same for several outputs with given gradients.
  void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads, bool retain = false);

  /// Gradient of a leaf; undefined where none has arrived.
  Tensor grad(const Tensor& leaf) const;
  void set_grad(const Tensor& leaf, Tensor grad);
  /// Forgets the gradients of all leaves.
  void zero_grad();
  /// Forgets the record without playing it.
  void reset();

  bool recording() const;
  /// Operators recorded and not yet played.
  size_t size() const;

 private:
  friend class NoGrad;
  friend std::vector<Tensor> checkpoint(Tape& tape,
                                        const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& segment,
                                        const std::vector<Tensor>& inputs);
  std::shared_ptr<autograd::State> state_;
};

/// Turns recording off for its lifetime.
class NoGrad {
 public:
  explicit NoGrad(Tape& tape);
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  std::shared_ptr<autograd::State> state_;
  bool before_;
};

/// A tape records what is computed from at least one of these (undefined tensors are allowed and ignored).
bool is_tracked(std::initializer_list<Tensor> inputs);
bool is_tracked(const std::vector<Tensor>& inputs);

/// Called by operators after the forward computation; does nothing unless is_tracked(inputs). Inputs and outputs may
/// contain undefined tensors. `saved` is checked at backward: a value overwritten in the meantime is an error.
void record(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
            const std::vector<Tensor>& saved, BackwardFn backward);

/// Runs `segment` without recording and runs it again, recorded, when its gradient is due: activations inside are not
/// kept. The segment must compute the same values both times; random operators take their counter as an argument, so
/// they do. Leaves used inside receive their gradients as usual.
std::vector<Tensor> checkpoint(Tape& tape,
                               const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& segment,
                               const std::vector<Tensor>& inputs);

}  // namespace lamina
