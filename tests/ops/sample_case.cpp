#include "lamina/ops/sampling/sample.h"

#include <algorithm>
#include <cmath>

#include "lamina/base/philox.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct SampleCase {
  static constexpr const char* name = "sample";
  static constexpr bool kBackward = false;
  struct Params {
    int64_t rows;
    int64_t vocab;
    ops::SampleOptions options;
    double spread = 4.0;
    int64_t clock = 0;  ///< size of the counter tensor that sample() increments
  };

  static std::vector<Params> sweep() {
    return {{3, 17, {.temperature = 0}, 4.0, 6},
            {1, 50, {.seed = 8}, 4.0, 3000},
            {2, 40000, {.temperature = 0}},
            {3, 1000, {.temperature = 0}, 0.0},  // all logits equal
            {1, 1, {}},
            {0, 5, {}},
            {40, 5, {.seed = 3}},
            {9, 1000, {.temperature = 0.7, .seed = 1}},
            {6, 5003, {.top_k = 40, .seed = 2}},
            {6, 1024, {.top_k = 1}},
            {6, 300, {.top_k = 300}},
            {6, 3001, {.top_p = 0.83, .seed = 4}, 9.0},
            {5, 3001, {.top_p = 1e-9}},
            {6, 2000, {.min_p = 0.3, .seed = 5}},
            {6, 2500, {.temperature = 1.3, .top_k = 90, .top_p = 0.61, .min_p = 0.02, .seed = 6}, 3.0},
            {8, 700, {.top_k = 7, .top_p = 0.53, .seed = 7}, 0.0}};  // all logits equal
  }
  static std::vector<Params> bench() { return {{1, 50304, {}}, {16, 50304, {.top_k = 50, .top_p = 0.9}}}; }
  static std::string describe(const Params& p) {
    return str(p.rows, "x", p.vocab, " temperature ", p.options.temperature, " top_k ", p.options.top_k, " top_p ",
               p.options.top_p, " min_p ", p.options.min_p);
  }

  static std::vector<double> counting(int64_t rows, int64_t from, int64_t step) {
    std::vector<double> values;
    for (int64_t r = 0; r < rows; ++r) values.push_back(static_cast<double>(from + r * step));
    return values;
  }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = {p.rows, p.vocab}, .low = -p.spread, .high = p.spread},
            integers({p.rows}, counting(p.rows, 0, 3)),
            integers({p.rows}, counting(p.rows, 5, 2)),
            integers({p.clock}, counting(p.clock, -3, 5))};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    Tensor drawn = in[2].clone();
    Tensor ids = Tensor::zeros({p.rows}, DType::i64, in[0].device());
    Tensor clock = p.clock > 0 ? in[3].clone() : Tensor();
    ops::sample(in[0], in[1], drawn, ids, p.options, clock);
    if (p.clock == 0) return {ids, drawn};
    return {ids, drawn, clock};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> ids({p.rows});
    Array<S> drawn({p.rows});
    for (int64_t r = 0; r < p.rows; ++r) {
      ids[r] = static_cast<S>(choice(p, &in[0].values[static_cast<size_t>(r * p.vocab)],
                                     static_cast<uint64_t>(in[1][r]), static_cast<uint64_t>(in[2][r])));
      drawn[r] = in[2][r] + 1;
    }
    if (p.clock == 0) return {ids, drawn};
    Array<S> clock({p.clock});
    for (int64_t n = 0; n < p.clock; ++n) clock[n] = in[3][n] + 1;
    return {ids, drawn, clock};
  }

  /// By definition: sort tokens by probability, then let each filter truncate the list.
  template <class S>
  static int64_t choice(const Params& p, const S* logits, uint64_t stream, uint64_t drawn) {
    std::vector<int64_t> order;
    for (int64_t id = 0; id < p.vocab; ++id) order.push_back(id);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
    if (p.options.temperature == 0) return order[0];
    size_t count = order.size();
    if (p.options.top_k > 0) count = std::min(count, static_cast<size_t>(p.options.top_k));
    while (count < order.size() && logits[order[count]] == logits[order[count - 1]]) ++count;
    const auto weight = [&](size_t place) {
      return std::exp((logits[order[place]] - logits[order[0]]) / static_cast<S>(p.options.temperature));
    };
    S all = 0;
    for (size_t i = 0; i < count; ++i) all += weight(i);
    S dropped = 0;
    while (count > 1 && p.options.top_p < 1 &&
           (dropped + weight(count - 1)) / all <= static_cast<S>(1 - p.options.top_p)) {
      dropped += weight(--count);
    }
    while (weight(count - 1) < static_cast<S>(p.options.min_p)) --count;
    std::vector<std::pair<int64_t, S>> kept;
    S left = 0;
    for (size_t i = 0; i < count; ++i) {
      kept.emplace_back(order[i], weight(i));
      left += kept.back().second;
    }
    std::sort(kept.begin(), kept.end());
    const auto bits = philox({p.options.seed, stream}, drawn);
    const double share = static_cast<double>((uint64_t{bits[0]} << 32U) | bits[1]) * 0x1p-64;
    S running = 0;
    for (const auto& [id, mass] : kept) {
      running += mass;
      if (static_cast<double>(running) > share * static_cast<double>(left)) return id;
    }
    return order[0];
  }
};
LAMINA_OP_CASE(SampleCase);

}  // namespace
}  // namespace lamina::testing
