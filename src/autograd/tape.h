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
struct SetAside;
class Entry;
}  // namespace autograd

/// Tape records of a graph that Tape::set_aside() took off the tape.
class TapeRecords {
 private:
  friend class Tape;
  std::shared_ptr<autograd::SetAside> records_;
};

/// Passed to an operator's backward function: its saved tensors, the gradients of its outputs, and add() for the
/// gradients of its inputs. Recording is off while the function runs.
class Backward {
 public:
  /// The i-th tensor passed to record() as saved.
  const Tensor& saved(int i) const;
  /// Gradient of the i-th output, contiguous. Zeros if nothing used the output.
  Tensor grad(int i = 0) const;
  /// Gradient of the i-th output in its current layout, which may be a strided view.
  Tensor strided_grad(int i) const;
  /// Gradient of the i-th output, contiguous and safe to overwrite: its own buffer if nothing shares it, otherwise a
  /// copy.
  Tensor grad_to_overwrite(int i = 0) const;
  /// Whether anything used the i-th output, so that it has a gradient.
  bool has_grad(int i) const;
  /// Whether the i-th input needs a gradient.
  bool needs(int i) const;
  /// Adds to the gradient of the i-th input, converted to that gradient's dtype. Moving in a tensor that nothing else
  /// uses saves a copy.
  void add(int i, Tensor grad);
  /// The i-th input's gradient buffer, if it already has values and may be added to in place (a GEMM with beta = 1).
  /// Otherwise undefined; then use add().
  Tensor accumulator(int i) const;

 private:
  friend struct autograd::State;
  Backward(autograd::State& state, size_t node) : state_(state), node_(node) {}
  autograd::State& state_;
  size_t node_;
};

/// Computes the gradients of an operator's inputs from those of its outputs.
using BackwardFn = std::function<void(Backward&)>;

/// Records operators as they run, and computes gradients in reverse order. Leaves are watched tensors; everything
/// computed from them is tracked while recording is on. A tape may be used by only one thread at a time.
class Tape {
 public:
  Tape();

  /// Makes `leaf` a leaf of this tape only. Its gradient has `grad_dtype`, by default the leaf's dtype. f32 gradients
  /// for bf16 weights accumulate many micro-batches with little rounding error.
  void watch(Tensor& leaf);
  void watch(Tensor& leaf, DType grad_dtype);  ///< watch() with another dtype for the gradient

  /// Adds the gradient of `loss` (one element) to the gradients of all leaves. Consumes the tape records: a second call
  /// on the same graph throws unless `retain` was set.
  void backward(const Tensor& loss, bool retain = false);
  /// backward() for several outputs with given gradients.
  void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads, bool retain = false);

  /// Gradient of a leaf; undefined if it has none.
  Tensor grad(const Tensor& leaf) const;
  void set_grad(const Tensor& leaf, Tensor grad);  ///< Replaces the gradient of a leaf; an undefined tensor clears it.
  /// Clears the gradients of all leaves.
  void zero_grad();
  /// Takes the tape records off the tape, so that other graphs can be recorded and consumed first. A pipeline stage
  /// needs this: it runs several forward passes before the first backward.
  TapeRecords set_aside();
  /// Puts records back for backward(). The tape must have no others.
  void resume(TapeRecords records);
  /// Discards the tape records without running backward.
  void reset();
  /// Backward calls `reached` at this place: after the operators recorded later, before those recorded earlier. Does
  /// nothing while recording is off.
  void mark(std::function<void()> reached);

  bool recording() const;  ///< whether operators are recorded now
  /// Number of recorded operators not yet consumed.
  size_t size() const;

 private:
  friend class NoGrad;
  friend std::vector<Tensor> checkpoint(Tape& tape,
                                        const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& segment,
                                        const std::vector<Tensor>& inputs);
  std::shared_ptr<autograd::State> state_;
};

/// Turns recording off for its lifetime, like torch.no_grad().
class NoGrad {
 public:
  explicit NoGrad(Tape& tape);  ///< recording is restored by the destructor
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  std::shared_ptr<autograd::State> state_;
  bool before_;
};

/// Whether a tape records operations on at least one of these tensors; undefined tensors are ignored.
bool is_tracked(std::initializer_list<Tensor> inputs);
bool is_tracked(const std::vector<Tensor>& inputs);  ///< whether any input is tracked

/// Records an operator after its forward computation. Does nothing unless is_tracked(inputs). Inputs and outputs may be
/// undefined. Backward throws if a tensor in `saved` was overwritten since.
void record(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
            const std::vector<Tensor>& saved, BackwardFn backward);

/// Activation checkpointing: runs `segment` without recording, and recomputes it during backward, so that its
/// activations are not stored. The segment must give the same values both times. Random operators do, because their
/// random stream is an argument. Leaves used inside receive their gradients as usual.
std::vector<Tensor> checkpoint(Tape& tape,
                               const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& segment,
                               const std::vector<Tensor>& inputs);

}  // namespace lamina
