#pragma once

#include <functional>
#include <vector>

#include "lamina/autograd/tape.h"

namespace lamina {

/// A call under a tape that can be repeated, to be timed: its backward pass alone, over a record that is kept, or
/// forward and backward together.
class TapedCall {
 public:
  struct Leaf {
    Tensor tensor;
    DType grad_dtype;
    Leaf(Tensor leaf) : tensor(std::move(leaf)), grad_dtype(tensor.dtype()) {}  // NOLINT: a tensor is a leaf
    Leaf(Tensor leaf, DType grad) : tensor(std::move(leaf)), grad_dtype(grad) {}
  };
  using Forward = std::function<std::vector<Tensor>(const std::vector<Tensor>& leaves)>;

  /// `gradient_of` makes the gradient that an output of `forward` is given. The tensors stay unwatched themselves.
  TapedCall(const std::vector<Leaf>& leaves, Forward forward, const std::function<Tensor(const Tensor&)>& gradient_of)
      : forward_(std::move(forward)) {
    for (const Leaf& leaf : leaves) {
      leaves_.push_back(leaf.tensor.detach().reshape(leaf.tensor.shape()));  // a handle of its own
      tape_.watch(leaves_.back(), leaf.grad_dtype);
    }
    outputs_ = forward_(leaves_);
    for (const Tensor& output : outputs_) grads_.push_back(gradient_of(output));
  }

  /// Plays the record that the constructor has made.
  void backward() {
    tape_.zero_grad();
    tape_.backward(outputs_, grads_, true);
  }

  /// From here on the first record is gone.
  void forward_and_backward() {
    tape_.reset();
    tape_.zero_grad();
    outputs_ = forward_(leaves_);
    tape_.backward(outputs_, grads_);
  }

  /// Of the i-th leaf, from the last backward pass.
  Tensor grad(size_t i) const { return tape_.grad(leaves_.at(i)); }

 private:
  Tape tape_;
  Forward forward_;
  std::vector<Tensor> leaves_;
  std::vector<Tensor> outputs_;
  std::vector<Tensor> grads_;
};

}  // namespace lamina
