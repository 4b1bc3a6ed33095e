#include "lamina/autograd/state.h"

#include <set>
#include <string_view>

namespace lamina {
namespace autograd {

std::shared_ptr<Entry> entry_of(const Tensor& tensor) {
  return tensor.defined() ? std::dynamic_pointer_cast<Entry>(tensor.grad_link()) : nullptr;
}

EntryList entries_of(std::span<const Tensor> inputs, const State& state) {
  EntryList entries;
  for (const Tensor& input : inputs) {
    auto entry = entry_of(input);
    entries.push_back(entry && entry->state().get() == &state ? std::move(entry) : nullptr);
  }
  return entries;
}

std::shared_ptr<State> state_of(std::span<const Tensor> inputs) {
  std::shared_ptr<State> found;
  for (const Tensor& input : inputs) {
    const auto entry = entry_of(input);
    if (!entry) continue;
    const auto state = entry->state();
    if (!state || !state->recording) continue;
    LAMINA_CHECK(!found || found == state, "an operator's inputs belong to two tapes; watch all leaves on one tape");
    LAMINA_CHECK(!entry->is_stale(*state), "the tensor ", input.shape(),
                 " comes from a graph that backward or reset has already consumed; run the forward pass again, or "
                 "detach() it");
    found = state;
  }
  return found;
}

bool Entry::is_stale(const State& state) const { return !leaf_ && generation_ != state.generation; }

void Entry::record_view(const char* what, Tensor& result, std::function<Tensor(const Tensor&)> pullback) {
  const auto tape = state();
  if (!tape || !tape->recording) return;
  LAMINA_CHECK(!is_stale(*tape), what, ": the tensor ", shape_,
               " comes from a graph that backward or reset has already consumed; run the forward pass again, or "
               "detach() it");
  tape->append(what, {shared_from_this()}, {result}, {},
               [pullback = std::move(pullback)](Backward& b) { b.add(0, pullback(b.grad())); });
}

void Entry::check_writable(const char* what) const {
  const auto tape = state();
  LAMINA_CHECK(!tape || !tape->recording || is_stale(*tape), what, " would overwrite ", leaf_ ? "a leaf" : "a tensor",
               " ", shape_, " that the tape tracks; write it inside a NoGrad scope, or compute a new tensor instead");
}

void Entry::check_grad(const char* what, const Tensor& grad) const {
  LAMINA_CHECK(grad.shape() == shape_, what, ": gradient ", grad.shape(), " for a tensor ", shape_,
               "; the shapes must be equal");
  LAMINA_CHECK(is_floating(grad.dtype()), what, ": the gradient is ", grad.dtype(), "; expected a floating type");
  LAMINA_CHECK(grad.device() == device_, what, ": the gradient is on ", grad.device(), ", the tensor on ", device_,
               "; move it with to(device)");
}

void Entry::set_grad(Tensor grad) {
  // Detach: a gradient that is tracked (or is the leaf itself) would keep the graph alive in a reference cycle.
  if (grad.defined()) grad = grad.detach();
  grad_ = std::move(grad);
  owned_ = grad_.defined() && grad_.owns_memory_alone();
}

void Entry::add_grad(const char* op, Tensor grad) {
  LAMINA_CHECK(grad.shape() == shape_ && grad.device() == device_, op, " backward: gradient ", grad.shape(), " on ",
               grad.device(), " for an input ", shape_, " on ", device_, "; the operator's backward function is wrong");
  if (grad.grad_link()) grad = grad.detach();
  if (!grad_.defined()) {
    if (grad.dtype() != grad_dtype_) grad = grad.to(grad_dtype_);
    owned_ = grad.owns_memory_alone() && grad.is_contiguous();
    // The optimizer scales a leaf's gradient in place, so the buffer must not be shared with another tensor.
    if (leaf_ && !owned_) {
      grad = grad.clone();
      owned_ = true;
    }
    grad_ = std::move(grad);
    return;
  }
  if (!owned_) {
    grad_ = grad_.clone();
    owned_ = true;
  }
  grad_.add_(grad);
}

std::shared_ptr<Entry> State::add_leaf(Tensor& leaf, DType grad_dtype) {
  auto entry = std::make_shared<Entry>(weak_from_this(), leaf, grad_dtype, generation, true);
  std::erase_if(leaves, [](const auto& old) { return old.expired(); });
  leaves.push_back(entry);
  leaf.set_grad_link(entry);
  return entry;
}

void State::append(const char* op, EntryList inputs, const std::vector<Tensor>& outputs,
                   const std::vector<Tensor>& saved, BackwardFn backward) {
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  for (const Tensor& output : outputs) {
    if (!output.defined() || !is_floating(output.dtype())) {
      node.outputs.push_back(nullptr);
      continue;
    }
    auto entry = std::make_shared<Entry>(weak_from_this(), output, output.dtype(), generation, false);
    Tensor handle = output;
    handle.set_grad_link(entry);
    node.outputs.push_back(std::move(entry));
  }
  node.saved.reserve(saved.size());
  for (const Tensor& tensor : saved) {
    node.saved.push_back(tensor.defined() ? Saved{tensor.detach(), tensor.version()} : Saved{});
  }
  node.backward = std::move(backward);
  nodes.push_back(std::move(node));
}

void State::seed(const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads) {
  LAMINA_CHECK(outputs.size() == grads.size(), "backward: ", outputs.size(), " outputs and ", grads.size(),
               " gradients; give one for each");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto entry = entry_of(outputs[i]);
    LAMINA_CHECK(entry && entry->state().get() == this, "backward: output ", i,
                 " does not depend on a leaf of this tape; watch a parameter before the forward pass");
    LAMINA_CHECK(!entry->is_stale(*this), "backward: the graph of output ", i,
                 " was already consumed by an earlier backward; run the forward pass again, or pass retain = true to "
                 "the first backward");
    LAMINA_CHECK(grads[i].defined(), "backward: the gradient of output ", i, " is undefined; leave that output out");
    entry->check_grad("backward", grads[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) entry_of(outputs[i])->add_grad("backward", grads[i].detach());
}

std::vector<std::vector<Entry*>> State::hooked_leaves() const {
  std::vector<std::vector<Entry*>> first_use(nodes.size());
  std::set<const Entry*> seen;
  for (size_t index = 0; index < nodes.size(); ++index) {
    // A checkpointed segment does not say which leaves it uses, so no leaf is known to be complete before the end.
    if (std::string_view(nodes[index].op) == "checkpoint") return {};
    for (const auto& input : nodes[index].inputs) {
      if (input && input->on_ready && seen.insert(input.get()).second) first_use[index].push_back(input.get());
    }
  }
  return first_use;
}

void State::run_backward(size_t begin, bool retain) {
  // Hooks run only for whole graphs. begin > 0 is a checkpointed segment within the backward pass of one.
  std::vector<std::vector<Entry*>> hooked;
  if (has_hooks && begin == 0) hooked = hooked_leaves();
  for (size_t index = nodes.size(); index-- > begin;) {
    bool wanted = nodes[index].outputs.empty();  // true for a Tape::mark
    for (const auto& output : nodes[index].outputs) wanted = wanted || (output && output->grad().defined());
    if (wanted) {
      for (const Saved& saved : nodes[index].saved) {
        LAMINA_CHECK(!saved.tensor.defined() || saved.tensor.version() == saved.version, nodes[index].op,
                     " backward: a tensor ", saved.tensor.shape(), " it needs was overwritten in place after the ",
                     "forward pass; clone it before writing, or write after backward");
      }
      Backward context(*this, index);
      // A checkpointed segment appends to `nodes`, which may reallocate. So take the function out first.
      const BackwardFn backward = retain ? nodes[index].backward : std::move(nodes[index].backward);
      backward(context);
    }
    for (const auto& output : nodes[index].outputs) {
      if (output) output->set_grad(Tensor());
    }
    if (!hooked.empty()) {
      const EntryList kept = nodes[index].inputs;  // a hook may use the tape
      for (Entry* leaf : hooked[index]) leaf->on_ready();
    }
    if (!retain) nodes.pop_back();
  }
}

}  // namespace autograd

const Tensor& Backward::saved(int i) const { return state_.nodes[node_].saved.at(static_cast<size_t>(i)).tensor; }

Tensor Backward::grad(int i) const { return strided_grad(i).contiguous(); }

Tensor Backward::strided_grad(int i) const {
  const auto& output = state_.nodes[node_].outputs.at(static_cast<size_t>(i));
  LAMINA_CHECK(output != nullptr, state_.nodes[node_].op, " backward: output ", i,
               " is undefined or holds integers and has no gradient");
  return output->grad().defined() ? output->grad() : output->zero_grad();
}

Tensor Backward::grad_to_overwrite(int i) const {
  if (!has_grad(i)) return grad(i);
  const auto& output = state_.nodes[node_].outputs.at(static_cast<size_t>(i));
  Tensor own = output->take_grad();
  return own.owns_memory_alone() && own.is_contiguous() ? own : own.clone();
}

bool Backward::has_grad(int i) const {
  const auto& output = state_.nodes[node_].outputs.at(static_cast<size_t>(i));
  return output && output->grad().defined();
}

bool Backward::needs(int i) const { return state_.nodes[node_].inputs.at(static_cast<size_t>(i)) != nullptr; }

void Backward::add(int i, Tensor grad) {
  const autograd::Node& node = state_.nodes[node_];
  const auto& input = node.inputs.at(static_cast<size_t>(i));
  if (input) input->add_grad(node.op, std::move(grad));
}

Tensor Backward::accumulator(int i) const {
  const auto& input = state_.nodes[node_].inputs.at(static_cast<size_t>(i));
  return input ? input->own_grad() : Tensor();
}

}  // namespace lamina
