#pragma once

#include <utility>

#include "lamina/autograd/tape.h"

namespace lamina::autograd {

/// Graph entry of one tensor: a leaf, or an output of a recorded operator.
class Entry final : public GradLink, public std::enable_shared_from_this<Entry> {
 public:
  Entry(std::weak_ptr<State> state, const Tensor& tensor, DType grad_dtype, uint64_t generation, bool leaf)
      : state_(std::move(state)),
        shape_(tensor.shape()),
        device_(tensor.device()),
        grad_dtype_(grad_dtype),
        generation_(generation),
        leaf_(leaf) {}

  void record_view(const char* what, Tensor& result, std::function<Tensor(const Tensor&)> pullback) override;
  void check_writable(const char* what) const override;

  std::shared_ptr<State> state() const { return state_.lock(); }
  bool is_leaf() const { return leaf_; }
  DType grad_dtype() const { return grad_dtype_; }
  /// Whether backward or reset has consumed the tape record this entry belongs to.
  bool is_stale(const State& state) const;

  const Tensor& grad() const { return grad_; }
  Tensor zero_grad() const { return Tensor::zeros(shape_, grad_dtype_, device_); }
  /// Throws an Error unless `grad` has this tensor's shape and device, and a floating dtype.
  void check_grad(const char* what, const Tensor& grad) const;
  /// Replaces the gradient; an undefined tensor clears it.
  void set_grad(Tensor grad);
  void add_grad(const char* op, Tensor grad);
  /// Returns the gradient and clears it.
  Tensor take_grad() {
    owned_ = false;
    return std::exchange(grad_, Tensor());
  }
  /// Called when the gradient of a leaf is complete (leaf_hook.h). May be empty.
  std::function<void()> on_ready;
  /// The gradient buffer if no other tensor shares it, otherwise undefined.
  Tensor own_grad() const { return owned_ ? grad_ : Tensor(); }

 private:
  std::weak_ptr<State> state_;
  Shape shape_;
  Device device_;
  DType grad_dtype_;
  uint64_t generation_;
  bool leaf_;
  bool owned_ = false;
  Tensor grad_;
};

using EntryList = std::vector<std::shared_ptr<Entry>>;

/// A tensor that backward reads, and its version when it was saved: a later in-place write is an error.
struct Saved {
  Tensor tensor;
  uint64_t version = 0;
};

/// The tape record of one operator.
struct Node {
  const char* op = "";
  EntryList inputs;   // null if the input needs no gradient
  EntryList outputs;  // null for undefined or integer outputs
  std::vector<Saved> saved;
  BackwardFn backward;
};

/// A graph that Tape::set_aside() took off the tape: its records, and the generation of its entries.
struct SetAside {
  std::vector<Node> nodes;
  uint64_t generation = 0;
};

/// The state of a tape: the tape records of its graph, and its leaves.
struct State : std::enable_shared_from_this<State> {
  std::vector<Node> nodes;
  std::vector<std::weak_ptr<Entry>> leaves;
  bool recording = true;
  bool in_backward = false;
  bool has_hooks = false;   // whether any leaf has a hook
  uint64_t generation = 1;  // generation of the graph on the tape
  uint64_t newest = 1;      // latest generation of all graphs, including those set aside

  /// Starts a new graph. Entries of the previous one become stale.
  void next_graph() {
    nodes.clear();
    generation = ++newest;
  }
  std::shared_ptr<Entry> add_leaf(Tensor& leaf, DType grad_dtype);
  void append(const char* op, EntryList inputs, const std::vector<Tensor>& outputs, const std::vector<Tensor>& saved,
              BackwardFn backward);
  void seed(const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads);
  /// Leaves with a hook, by the index of the first recorded operator that uses them. Backward reaches that operator
  /// last.
  std::vector<std::vector<Entry*>> hooked_leaves() const;
  /// Runs backward through the nodes from the last one down to `begin`. Drops each node afterwards unless `retain`.
  void run_backward(size_t begin, bool retain);
};

/// The graph entry of a tensor, or null.
std::shared_ptr<Entry> entry_of(const Tensor& tensor);
/// The entries of these tensors on this tape; null for untracked tensors.
EntryList entries_of(std::span<const Tensor> inputs, const State& state);
/// The tape that currently records operations on these inputs, or null.
std::shared_ptr<State> state_of(std::span<const Tensor> inputs);

}  // namespace lamina::autograd
