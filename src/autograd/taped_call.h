#pragma once

#include <functional>
#include <vector>

#include "lamina/autograd/tape.h"

namespace lamina {

/// A call under a tape that benchmarks can repeat: either the backward pass alone, over retained tape records, or
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

  /// `gradient_of` returns the gradient to use for an output of `forward`. The tensors passed in stay unwatched.
  TapedCall(const std::vector<Leaf>& leaves, Forward forward, const std::function<Tensor(const Tensor&)>& gradient_of)
      : forward_(std::move(forward)) {
    for (const Leaf& leaf : leaves) {
      leaves_.push_back(leaf.tensor.detach().reshape(leaf.tensor.shape()));  // a separate handle
      tape_.watch(leaves_.back(), leaf.grad_dtype);
    }
    outputs_ = forward_(leaves_);
    for (const Tensor& output : outputs_) grads_.push_back(gradient_of(output));
  }

  /// Runs backward over the tape records made by the constructor.
  void backward() {
    tape_.zero_grad();
    tape_.backward(outputs_, grads_, true);
  }

  /// Runs forward and backward. Discards the constructor's tape records; backward() then uses those of this call.
  void forward_and_backward() {
    tape_.reset();
    tape_.zero_grad();
    outputs_ = forward_(leaves_);
    tape_.backward(outputs_, grads_);
  }

  /// Gradient of the i-th leaf from the last backward pass.
  Tensor grad(size_t i) const { return tape_.grad(leaves_.at(i)); }

 private:
  Tape tape_;
  Forward forward_;
  std::vector<Tensor> leaves_;
  std::vector<Tensor> outputs_;
  std::vector<Tensor> grads_;
};

}  // namespace lamina
