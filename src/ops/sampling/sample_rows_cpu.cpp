// Rows are divided among the threads. A row is copied to a list of candidates only if its options filter tokens. Ranges
// of rows share that memory: with a list per row, clearing fresh pages took longer than sampling.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lamina/base/philox.h"
#include "lamina/ops/sampling/candidates.h"
#include "lamina/ops/sampling/sample_rows_kernel.h"
#include "lamina/ops/sampling/sample_unfiltered.h"

namespace lamina::ops::cpu {
namespace {

constexpr int64_t kRangesPerThread = 4;
constexpr int64_t kLanes = 16;  // independent maxima and flags per SIMD loop

/// The options of one row, read from the option tensors.
class RowOptions {
 public:
  RowOptions(const SampleRows& args, int64_t row) : row_(row) {
    const RowSampling& o = args.options;
    temperature = number(o.temperature, 1);
    top_p = number(o.top_p, 1);
    min_p = number(o.min_p, 0);
    typical_p = number(o.typical_p, 1);
    repetition = number(o.repetition, 1);
    presence = number(o.presence, 0);
    frequency = number(o.frequency, 0);
    if (o.top_k.defined()) top_k = o.top_k.data<int32_t>()[row];
    if (o.seed.defined()) seed = static_cast<uint64_t>(o.seed.data<int64_t>()[row]);
    if (o.drawn.defined()) drawn = static_cast<uint64_t>(o.drawn.data<int64_t>()[row]);
    const int64_t vocab = args.logits.dim(1);
    if (o.counts.defined()) counts = o.counts.data<int32_t>() + row * vocab;
    if (o.bias.defined()) bias = o.bias.data<float>() + row * vocab;
    if (o.mask.defined()) mask = o.mask.data<int32_t>() + row * o.mask.dim(1);
    check();
  }

  bool allows(int64_t id) const {
    return mask == nullptr || (static_cast<uint32_t>(mask[id / 32]) >> (id % 32) & 1U) != 0;
  }
  /// Whether there is no mask, no bias and no penalty.
  bool keeps_logits() const { return mask == nullptr && bias == nullptr && counts == nullptr; }
  /// The logit after bias and penalties.
  double adjusted(int64_t id, double logit) const {
    if (bias != nullptr) logit += static_cast<double>(bias[id]);
    if (counts == nullptr || counts[id] == 0) return logit;
    logit = logit < 0 ? logit * repetition : logit / repetition;
    const auto occurrences = static_cast<double>(static_cast<uint32_t>(counts[id]) & 0x7fffffffU);
    return occurrences > 0 ? logit - presence - frequency * occurrences : logit;
  }
  /// adjusted() / divisor; throws if it is NaN.
  double checked(int64_t id, double logit, double divisor = 1) const {
    const double result = adjusted(id, logit) / divisor;
    LAMINA_CHECK(!std::isnan(result), "sample_rows: the logit of token ", id, " in row ", row_,
                 " is NaN after bias and penalties; give finite ones");
    return result;
  }

  bool filters() const { return top_k > 0 || top_p < 1 || min_p > 0 || typical_p < 1; }

  double temperature, top_p, min_p, typical_p, repetition, presence, frequency;
  int64_t top_k = 0;
  uint64_t seed = 0;
  uint64_t drawn = 0;

 private:
  double number(const Tensor& option, double otherwise) const {
    return option.defined() ? static_cast<double>(option.data<float>()[row_]) : otherwise;
  }
  void check() const {
    LAMINA_CHECK(temperature >= 0 && std::isfinite(temperature), "sample_rows: temperature[", row_, "] is ",
                 temperature, "; expected 0 (the likeliest token) or a positive number");
    LAMINA_CHECK(top_k >= 0, "sample_rows: top_k[", row_, "] is ", top_k, "; expected 0 (no limit) or more");
    LAMINA_CHECK(top_p > 0 && typical_p > 0, "sample_rows: top_p[", row_, "] is ", top_p, ", typical_p ", typical_p,
                 "; expected probabilities above 0, 1 for no limit");
    LAMINA_CHECK(min_p >= 0 && min_p <= 1, "sample_rows: min_p[", row_, "] is ", min_p,
                 "; expected a number from 0 (no limit) to 1");
    LAMINA_CHECK(repetition > 0, "sample_rows: repetition[", row_, "] is ", repetition,
                 "; expected a positive number, 1 for none");
  }

  int64_t row_;
  const int32_t* counts = nullptr;
  const float* bias = nullptr;
  const int32_t* mask = nullptr;
};

/// Calls body(i, lane) for all i in [0, n), lane = i % 16, in a form that compilers turn into SIMD.
template <class F>
void for_lanes(int64_t n, const F& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) body(i + lane, lane);
  }
  for (; i < n; ++i) body(i, 0);
}

/// The index of the largest logit, ties to the lowest. No logit is NaN.
template <class T>
int64_t index_of_largest(const T* logits, int64_t vocab) {
  using A = Accumulate<T>;
  A most[kLanes];
  std::fill_n(most, kLanes, -std::numeric_limits<A>::infinity());
  for_lanes(vocab, [&](int64_t id, int64_t lane) {
    const A logit = convert<A>(logits[id]);
    most[lane] = most[lane] < logit ? logit : most[lane];
  });
  const A largest = *std::max_element(most, most + kLanes);
  return std::find_if(logits, logits + vocab, [&](T logit) { return convert<A>(logit) == largest; }) - logits;
}

template <class T>
void check_numbers(const T* logits, int64_t vocab, int64_t row) {
  using A = Accumulate<T>;
  int32_t broken[kLanes] = {};
  for_lanes(vocab, [&](int64_t id, int64_t lane) {
    const A logit = convert<A>(logits[id]);
    broken[lane] |= logit != logit ? 1 : 0;
  });
  if (std::all_of(broken, broken + kLanes, [](int32_t one) { return one == 0; })) return;
  const auto is_nan = [](T logit) { return std::isnan(convert<A>(logit)); };
  throw Error(str("sample_rows: the logit of token ", std::find_if(logits, logits + vocab, is_nan) - logits, " in row ",
                  row, " is NaN; check the model's weights, or use a dtype with more range"));
}

/// The token with the largest adjusted logit, ties to the lowest id; −1 if the mask allows none.
template <class T>
int64_t greedy(const T* logits, int64_t vocab, const RowOptions& o) {
  if (vocab > 0 && o.keeps_logits()) return index_of_largest(logits, vocab);
  int64_t best = -1;
  double most = 0;
  for (int64_t id = 0; id < vocab; ++id) {
    if (!o.allows(id)) continue;
    const double logit = o.checked(id, convert<double>(logits[id]));
    if (best >= 0 && !(logit > most)) continue;
    best = id;
    most = logit;
  }
  return best;
}

/// Memory for the rows of a range.
struct RowScratch {
  std::vector<double> logits;
  Candidates list;
};

template <class T>
int64_t draw(const T* logits, int64_t vocab, const RowOptions& o, RowScratch& scratch) {
  if (o.temperature == 0) return greedy(logits, vocab, o);
  const auto words = philox({o.seed, 0}, o.drawn);
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (!o.filters()) {
    scratch.logits.resize(static_cast<size_t>(vocab));
    for (int64_t id = 0; id < vocab; ++id) {
      const double logit = o.allows(id) ? o.checked(id, convert<double>(logits[id]), o.temperature) : kNever;
      scratch.logits[static_cast<size_t>(id)] = logit;
    }
    return sample_unfiltered(scratch.logits, words);
  }
  Candidates& list = scratch.list;
  list.clear();
  list.reserve(static_cast<size_t>(vocab));
  for (int64_t id = 0; id < vocab; ++id) {
    if (!o.allows(id)) continue;
    const double logit = o.checked(id, convert<double>(logits[id]), o.temperature);
    if (logit > kNever) list.push_back({id, logit, 0});
  }
  if (list.empty()) return -1;
  keep_top_k(list, o.top_k);
  keep_top_p(list, o.top_p);
  keep_min_p(list, o.min_p);
  keep_typical(list, o.typical_p);
  normalise(list);
  return sample_from(list, words);
}

/// Writes the log-probabilities of the sampled token and of the likeliest ones.
template <class T>
void write_logprobs(const SampleRows& args, const T* logits, int64_t row) {
  const int64_t k = args.top_logprobs;
  const auto value = [&](int64_t id) { return convert<double>(logits[id]); };
  double most = -std::numeric_limits<double>::infinity();
  for (int64_t id = 0; id < args.vocab_size; ++id) most = std::max(most, value(id));
  double sum = 0;
  for (int64_t id = 0; id < args.vocab_size; ++id)
    sum += static_cast<double>(std::exp(static_cast<float>(value(id) - most)));
  const double total = most + std::log(sum);
  float* out = args.logprobs.data<float>() + row * (1 + k);
  const int64_t chosen = args.ids.data<int64_t>()[row];
  out[0] = chosen < 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(value(chosen) - total);
  if (k == 0) return;
  std::vector<int64_t> order(static_cast<size_t>(args.vocab_size));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::partial_sort(order.begin(), order.begin() + k, order.end(),
                    [&](int64_t a, int64_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  for (int64_t i = 0; i < k; ++i) {
    args.top_ids.data<int64_t>()[row * k + i] = order[static_cast<size_t>(i)];
    out[1 + i] = static_cast<float>(value(order[static_cast<size_t>(i)]) - total);
  }
}

}  // namespace

void sample_rows(const SampleRows& args) {
  const int64_t vocab = args.logits.dim(1);
  visit_floating(args.logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto sample = [&](int64_t row, RowScratch& scratch) {
      const T* logits = args.logits.data<T>() + row * vocab;
      check_numbers(logits, args.vocab_size, row);
      args.ids.data<int64_t>()[row] = draw(logits, args.vocab_size, RowOptions(args, row), scratch);
      if (args.logprobs.defined()) write_logprobs(args, logits, row);
    };
    const int64_t rows = args.logits.dim(0);
    const Threads& threads = args.logits.device().threads();
    threads.ranges(rows, rows / (kRangesPerThread * threads.count()), [&](int64_t begin, int64_t end) {
      RowScratch scratch;
      for (int64_t row = begin; row < end; ++row) sample(row, scratch);
    });
  });
}

void count_tokens(const CountTokens& args) {
  auto* counts = args.counts.data<int32_t>();
  for (int64_t i = 0; i < args.ids.numel(); ++i) {
    const int64_t row = args.rows.data<int32_t>()[i];
    const int64_t id = args.ids.data<int64_t>()[i];
    if (row < 0) continue;
    LAMINA_CHECK(row < args.counts.dim(0) && id >= 0 && id < args.counts.dim(1), "count_tokens: rows[", i, "] is ", row,
                 " and ids[", i, "] is ", id, "; expected an entry of counts ", args.counts.shape());
    int32_t& count = counts[row * args.counts.dim(1) + id];
    if ((count & 0x7fffffff) != 0x7fffffff) ++count;  // bit 31 marks the prompt and is not part of the count
  }
}

}  // namespace lamina::ops::cpu
