// Rows are divided among the threads. A row is sorted only if top_p needs it.
#include <cmath>

#include "lamina/base/philox.h"
#include "lamina/ops/elementwise/increment_kernel.h"
#include "lamina/ops/sampling/candidates.h"
#include "lamina/ops/sampling/sample_kernel.h"
#include "lamina/ops/sampling/sample_unfiltered.h"

namespace lamina::ops::cpu {
namespace {

template <class T>
int64_t sample_row(const T* logits, int64_t vocab, const RandomKey& key, uint64_t drawn, const SampleOptions& o) {
  for (int64_t id = 0; id < vocab; ++id) {
    LAMINA_CHECK(!std::isnan(convert<double>(logits[id])), "sample: the logit of token ", id,
                 " is NaN; check the model's weights, or use a dtype with more range");
  }
  if (o.temperature != 0 && o.top_k == 0 && o.top_p >= 1 && o.min_p <= 0) {
    std::vector<double> all(static_cast<size_t>(vocab));
    for (int64_t id = 0; id < vocab; ++id) all[static_cast<size_t>(id)] = convert<double>(logits[id]) / o.temperature;
    const int64_t id = sample_unfiltered(all, philox(key, drawn));
    if (id >= 0) return id;
  }
  Candidates list;
  list.reserve(static_cast<size_t>(vocab));
  for (int64_t id = 0; id < vocab; ++id) list.push_back({id, convert<double>(logits[id]), 0});
  if (o.temperature == 0) return likeliest(list).id;
  for (Candidate& candidate : list) candidate.logit /= o.temperature;
  keep_top_k(list, o.top_k);
  keep_top_p(list, o.top_p);
  keep_min_p(list, o.min_p);
  normalise(list);
  return sample_from(std::move(list), philox(key, drawn));
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
  if (args.clock.defined()) increment_(args.clock);
}

}  // namespace lamina::ops::cpu
