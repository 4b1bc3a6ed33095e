#include "lamina/autograd/state.h"

namespace lamina {

using Segment = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

namespace {

/// Runs the segment again on the tape that is being played, plays just that part, and takes it off again. Leaves used
/// inside the segment are reached directly; the inputs are stood in for by leaves of their own.
void replay(autograd::State& state, const Segment& segment, size_t input_count, Backward& outer, size_t output_count) {
  std::vector<Tensor> inputs;
  autograd::EntryList entries;
  for (size_t i = 0; i < input_count; ++i) {
    const Tensor& saved = outer.saved(static_cast<int>(i));
    // A new handle: the saved tensor itself must not become a leaf.
    Tensor input = saved.defined() ? saved.reshape(saved.shape()) : saved;
    entries.push_back(outer.needs(static_cast<int>(i)) ? state.add_leaf(input, input.dtype()) : nullptr);
    inputs.push_back(std::move(input));
  }
  std::vector<Tensor> grads;
  for (size_t i = 0; i < output_count; ++i) grads.push_back(outer.grad(static_cast<int>(i)));

  const size_t begin = state.nodes.size();
  state.recording = true;
  std::vector<Tensor> outputs;
  try {
    outputs = segment(inputs);
  } catch (...) {
    state.recording = false;
    throw;
  }
  state.recording = false;
  LAMINA_CHECK(outputs.size() == output_count, "checkpoint: the segment returned ", output_count,
               " tensors the first time and ", outputs.size(), " the second; it must repeat itself");
  std::vector<Tensor> tracked;
  std::vector<Tensor> tracked_grads;
  for (size_t i = 0; i < output_count; ++i) {
    if (!autograd::entry_of(outputs[i])) continue;
    tracked.push_back(outputs[i]);
    tracked_grads.push_back(grads[i]);
  }
  state.seed(tracked, tracked_grads);
  state.play(begin, false);
  for (size_t i = 0; i < input_count; ++i) {
    if (entries[i] && entries[i]->grad().defined()) outer.add(static_cast<int>(i), entries[i]->grad());
  }
}

}  // namespace

std::vector<Tensor> checkpoint(Tape& tape, const Segment& segment, const std::vector<Tensor>& inputs) {
  if (!tape.recording()) return segment(inputs);
  std::vector<Tensor> plain;
  autograd::EntryList entries;
  for (const Tensor& input : inputs) {
    plain.push_back(input.defined() ? input.detach() : input);
    entries.push_back(autograd::entry_of(input));
  }
  autograd::state_of(inputs);  // refuses stale inputs and inputs of two tapes
  std::vector<Tensor> outputs;
  {
    const NoGrad scope(tape);
    outputs = segment(plain);
  }
  autograd::State* state = tape.state_.get();
  for (Tensor& output : outputs) {
    // An input passed through unchanged must not carry two links.
    for (const Tensor& input : plain) {
      if (output.shares_memory_with(input)) output = output.clone();
    }
  }
  tape.state_->append("checkpoint", std::move(entries), outputs, plain,
                      [state, segment, input_count = inputs.size(), output_count = outputs.size()](Backward& outer) {
                        replay(*state, segment, input_count, outer, output_count);
                      });
  return outputs;
}

}  // namespace lamina
