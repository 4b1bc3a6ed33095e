#include "lamina/autograd/state.h"

namespace lamina {

using Segment = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

namespace {

/// Turns recording on for its lifetime, within a backward pass.
class Recording {
 public:
  explicit Recording(autograd::State& state) : state_(state) { state_.recording = true; }
  ~Recording() { state_.recording = false; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  autograd::State& state_;
};

/// Recomputes the segment on the tape whose backward is running, runs backward through that part alone, and removes it
/// again. The inputs keep their original graph entries, so gradients are summed in the same order as without
/// checkpointing: the result is bit-identical.
void replay(autograd::State& state, const Segment& segment, const autograd::EntryList& entries, Backward& outer,
            size_t output_count) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Tensor& saved = outer.saved(static_cast<int>(i));
    // A new handle, because the saved tensor itself must not be tracked.
    Tensor input = saved.defined() ? saved.reshape(saved.shape()) : saved;
    if (entries[i]) input.set_grad_link(entries[i]);
    inputs.push_back(std::move(input));
  }
  const size_t begin = state.nodes.size();
  std::vector<Tensor> outputs;
  {
    const Recording scope(state);
    outputs = segment(inputs);
  }
  LAMINA_CHECK(outputs.size() == output_count, "checkpoint: the segment returned ", output_count,
               " tensors the first time and ", outputs.size(), " the second; it must be deterministic");
  std::vector<Tensor> tracked;
  std::vector<Tensor> grads;
  for (size_t i = 0; i < output_count; ++i) {
    const int index = static_cast<int>(i);
    if (!outer.has_grad(index) || !autograd::entry_of(outputs[i])) continue;
    tracked.push_back(outputs[i]);
    grads.push_back(outer.grad(index));
  }
  state.seed(tracked, grads);
  state.run_backward(begin, false);
}

/// Gives an output of the segment a handle of its own, so that a tensor the segment returned unchanged keeps its graph
/// entry. An output that shares memory with an input is copied.
Tensor separate(const Tensor& output, const std::vector<Tensor>& inputs) {
  if (!output.defined()) return output;
  for (const Tensor& input : inputs) {
    if (input.defined() && output.shares_memory_with(input)) return output.detach().clone();
  }
  return output.detach();
}

}  // namespace

std::vector<Tensor> checkpoint(Tape& tape, const Segment& segment, const std::vector<Tensor>& inputs) {
  if (!tape.recording()) return segment(inputs);
  autograd::State* state = tape.state_.get();
  const auto recording = autograd::state_of(inputs);  // rejects stale inputs and inputs of two tapes
  LAMINA_CHECK(!recording || recording.get() == state,
               "checkpoint: the inputs belong to another tape; give the tape that watches the leaves");
  std::vector<Tensor> plain;
  plain.reserve(inputs.size());
  for (const Tensor& input : inputs) plain.push_back(input.defined() ? input.detach() : input);
  std::vector<Tensor> outputs;
  {
    const NoGrad scope(tape);
    outputs = segment(plain);
  }
  for (Tensor& output : outputs) output = separate(output, plain);
  autograd::EntryList entries = autograd::entries_of(inputs, *state);
  state->append("checkpoint", entries, outputs, plain,
                [state, segment, entries, output_count = outputs.size()](Backward& outer) {
                  replay(*state, segment, entries, outer, output_count);
                });
  return outputs;
}

}  // namespace lamina
