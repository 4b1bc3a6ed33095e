#include <algorithm>
#include <cstdio>

#include "lamina/arch/cluster/step.h"

namespace lamina::arch {
namespace {

struct Part {
  Limit limit;
  const char* words;
  double seconds;
};

/// Parts of the step, largest first.
std::vector<Part> parts_of(const StepEstimate& estimate) {
  const StepSeconds& s = estimate.seconds;
  std::vector<Part> parts{
      {Limit::compute, "matrix products and attention", s.passes.products + s.passes.mixing},
      {Limit::compute, "recomputation", s.passes.recompute},
      {Limit::memory_bandwidth, "norms, activations and the optimizer", s.passes.memory + s.optimizer},
      {Limit::network, "tensor-parallel communication", s.passes.tensor},
      {Limit::network, "context-parallel communication", s.passes.context},
      {Limit::network, "exchange of experts' tokens", s.passes.exchange},
      {Limit::network, "pipeline sends", s.pipeline},
      {Limit::network, "data-parallel communication", s.data},
      {Limit::bubble, "pipeline bubble", s.bubble},
  };
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
  return parts;
}

}  // namespace

Limit limit_of(const StepEstimate& estimate) {
  if (!estimate.memory.fits()) return Limit::memory;
  return parts_of(estimate).front().limit;
}

std::string limit_text(const StepEstimate& estimate) {
  const std::vector<Part> parts = parts_of(estimate);
  const double total = estimate.seconds.total();
  const auto share = [total](const Part& part) {
    char text[16];
    std::snprintf(text, sizeof text, "%.0f %%", 100 * part.seconds / total);
    return std::string(text);
  };
  const Limit limit = parts[0].limit;
  std::string text = str(names_of(limit)[static_cast<size_t>(limit)], ": ", parts[0].words, " ", share(parts[0]));
  if (parts[1].seconds >= 0.005 * total) text += str(", then ", parts[1].words, " ", share(parts[1]));
  return text;
}

}  // namespace lamina::arch
