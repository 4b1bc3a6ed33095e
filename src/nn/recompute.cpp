#include "lamina/nn/recompute.h"

#include "lamina/autograd/tape.h"

namespace lamina::nn {

void recompute_in_backward(Tape* tape, const Tensor& value, std::function<Tensor()> compute) {
  if (tape == nullptr || !tape->recording() || value.owns_memory_alone()) return;
  const Tensor kept = value.detach();
  kept.release_memory();
  tape->mark(
      [kept, compute = std::move(compute)] { kept.restore_memory([&](Tensor memory) { memory.copy_(compute()); }); });
}

}  // namespace lamina::nn
