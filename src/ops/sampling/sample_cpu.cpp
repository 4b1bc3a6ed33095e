// Rows are shared out among the threads; a row is sorted only where top_p asks for it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lamina/base/philox.h"
#include "lamina/ops/sampling/sample.h"

namespace lamina::ops::cpu {
namespace {

struct Choice {
  int64_t id;
  double logit;
  double weight;
};

bool likelier(const Choice& a, const Choice& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

double total(const std::vector<Choice>& choices) {
  double sum = 0;
  for (const Choice& choice : choices) sum += choice.weight;
  return sum;
}

void keep(std::vector<Choice>& choices, const SampleOptions& o) {
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(choices.size())) {
    std::nth_element(choices.begin(), choices.begin() + (o.top_k - 1), choices.end(), likelier);
    const double least = choices[static_cast<size_t>(o.top_k - 1)].logit;
    std::erase_if(choices, [&](const Choice& choice) { return choice.logit < least; });
  }
  if (o.top_p < 1) {
    std::sort(choices.begin(), choices.end(), likelier);
    double to_drop = (1 - o.top_p) * total(choices);
    while (choices.size() > 1 && choices.back().weight <= to_drop) {
      to_drop -= choices.back().weight;
      choices.pop_back();
    }
  }
  std::erase_if(choices, [&](const Choice& choice) { return choice.weight < o.min_p; });
}

template <class T>
int64_t sample_row(const T* logits, int64_t vocab, const RandomKey& key, uint64_t drawn, const SampleOptions& o) {
  std::vector<Choice> choices;
  for (int64_t id = 0; id < vocab; ++id) {
    const auto logit = convert<double>(logits[id]);
    LAMINA_CHECK(!std::isnan(logit), "sample: the logit of token ", id,
                 " is not a number; the model's weights are broken, or its type overflows");
    choices.push_back({id, logit, 0});
  }
  const Choice best = *std::min_element(choices.begin(), choices.end(), likelier);
  if (o.temperature == 0) return best.id;
  for (Choice& choice : choices) choice.weight = std::exp((choice.logit - best.logit) / o.temperature);
  keep(choices, o);
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) { return a.id < b.id; });
  const auto bits = philox(key, drawn);
  const uint64_t word = (uint64_t{bits[0]} << 32U) | bits[1];
  double left = static_cast<double>(word >> 11U) * 0x1p-53 * total(choices);
  for (const Choice& choice : choices) {
    if ((left -= choice.weight) < 0) return choice.id;
  }
  return best.id;  // where rounding leaves a rest
}

}  // namespace

void sample(const SampleArgs& args) {
  const int64_t vocab = args.logits.dim(1);
  visit_floating(args.logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* logits = args.logits.data<T>();
    const auto* streams = args.streams.data<int64_t>();
    auto* drawn = args.drawn.data<int64_t>();
    auto* ids = args.ids.data<int64_t>();
    args.logits.device().threads().tasks(args.logits.dim(0), [&](int64_t row) {
      const RandomKey key{args.options.seed, static_cast<uint64_t>(streams[row])};
      ids[row] = sample_row(logits + row * vocab, vocab, key, static_cast<uint64_t>(drawn[row]), args.options);
      ++drawn[row];
    });
  });
}

void count_on(const Tensor& counters) {
  auto* values = counters.data<int64_t>();
  for (int64_t i = 0; i < counters.numel(); ++i) ++values[i];
}

}  // namespace lamina::ops::cpu
