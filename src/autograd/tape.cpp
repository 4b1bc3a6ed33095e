#include "lamina/autograd/tape.h"

#include <utility>

#include "lamina/autograd/state.h"

namespace lamina {

using autograd::State;

Tape::Tape() : state_(std::make_shared<State>()) {}

void Tape::watch(Tensor& leaf) { watch(leaf, leaf.dtype()); }

void Tape::watch(Tensor& leaf, DType grad_dtype) {
  LAMINA_CHECK(is_floating(leaf.dtype()) && is_floating(grad_dtype), "watch: a ", leaf.dtype(), " tensor with a ",
               grad_dtype, " gradient; gradients exist for floating types only");
  const auto known = autograd::entry_of(leaf);
  LAMINA_CHECK(!known || known->is_leaf(), "watch: the tensor ", leaf.shape(),
               " was computed from other leaves; watch its detach() instead");
  // Already watched: keep the entry, because recorded operators refer to it.
  if (known && known->state() == state_ && known->grad_dtype() == grad_dtype) return;
  state_->add_leaf(leaf, grad_dtype);
}

void Tape::backward(const Tensor& loss, bool retain) {
  LAMINA_CHECK(loss.numel() == 1, "backward: the loss ", loss.shape(), " has ", loss.numel(),
               " elements; reduce it to one, or give the gradients of all outputs");
  backward({loss}, {Tensor::full(loss.shape(), 1.0, loss.dtype(), loss.device())}, retain);
}

void Tape::backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads, bool retain) {
  LAMINA_CHECK(!state_->in_backward, "backward was called from inside a backward function");
  state_->seed(outputs, grads);
  const bool before = std::exchange(state_->recording, false);
  state_->in_backward = true;
  const auto finish = [&](bool keep) {
    state_->recording = before;
    state_->in_backward = false;
    if (!keep) state_->next_graph();
  };
  try {
    state_->run_backward(0, retain);
  } catch (...) {
    finish(false);  // gradients are incomplete: the tape records are unusable
    throw;
  }
  finish(retain);
}

namespace {

std::shared_ptr<autograd::Entry> leaf_entry(const char* what, const Tensor& leaf, const State* state) {
  auto entry = autograd::entry_of(leaf);
  LAMINA_CHECK(entry && entry->is_leaf() && entry->state().get() == state, what, ": the tensor ", leaf.shape(),
               " is not a leaf of this tape; watch it before the forward pass");
  return entry;
}

}  // namespace

Tensor Tape::grad(const Tensor& leaf) const { return leaf_entry("grad", leaf, state_.get())->grad(); }

void Tape::set_grad(const Tensor& leaf, Tensor grad) {
  const auto entry = leaf_entry("set_grad", leaf, state_.get());
  if (grad.defined()) entry->check_grad("set_grad", grad);
  entry->set_grad(std::move(grad));
}

void Tape::zero_grad() {
  for (const auto& weak : state_->leaves) {
    if (const auto entry = weak.lock()) entry->set_grad(Tensor());
  }
}

void Tape::reset() {
  LAMINA_CHECK(!state_->in_backward, "reset was called from inside a backward function");
  state_->next_graph();
}

TapeRecords Tape::set_aside() {
  LAMINA_CHECK(!state_->in_backward, "set_aside was called from inside a backward function");
  TapeRecords taken;
  taken.records_ = std::make_shared<autograd::SetAside>();
  taken.records_->nodes = std::exchange(state_->nodes, {});
  taken.records_->generation = state_->generation;
  state_->next_graph();
  return taken;
}

void Tape::resume(TapeRecords records) {
  LAMINA_CHECK(!state_->in_backward, "resume was called from inside a backward function");
  LAMINA_CHECK(records.records_ != nullptr, "resume: no records; give the result of set_aside(), once");
  LAMINA_CHECK(state_->nodes.empty(), "resume: the tape has ", state_->nodes.size(),
               " records of another graph; run its backward or set it aside first");
  state_->nodes = std::move(records.records_->nodes);
  state_->generation = records.records_->generation;
}

void Tape::mark(std::function<void()> reached) {
  if (!state_->recording) return;
  state_->append("mark", {}, {}, {}, [reached = std::move(reached)](Backward&) { reached(); });
}

bool Tape::recording() const { return state_->recording; }
size_t Tape::size() const { return state_->nodes.size(); }

NoGrad::NoGrad(Tape& tape) : state_(tape.state_), before_(std::exchange(state_->recording, false)) {}
NoGrad::~NoGrad() { state_->recording = before_; }

bool is_tracked(std::initializer_list<Tensor> inputs) {
  return autograd::state_of(std::span(inputs.begin(), inputs.size())) != nullptr;
}
bool is_tracked(const std::vector<Tensor>& inputs) { return autograd::state_of(inputs) != nullptr; }

void record(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
            const std::vector<Tensor>& saved, BackwardFn backward) {
  const auto state = autograd::state_of(inputs);
  if (!state) return;
  state->append(op, autograd::entries_of(inputs, *state), outputs, saved, std::move(backward));
}

}  // namespace lamina
