#include "lamina/ops/sampling/sample_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lamina/base/philox.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

/// Options of one row.
struct RowChoice {
  double temperature = 1;
  double top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double typical_p = 1;
  double repetition = 1;
  double presence = 0;
  double frequency = 0;
};

struct SampleRowsCase {
  static constexpr const char* name = "sample_rows";
  static constexpr bool kBackward = false;
  struct Params {
    int64_t vocab;
    std::vector<RowChoice> rows;
    int64_t vocab_size = 0;
    int64_t top = 0;
    double spread = 4.0;
    bool counts = false;
    bool bias = false;
    bool mask = false;
    bool defaults = false;  ///< all options undefined
    bool logprobs = true;

    int64_t size() const { return static_cast<int64_t>(rows.size()); }
    int64_t allowed() const { return vocab_size == 0 ? vocab : vocab_size; }
  };

  static std::vector<Params> sweep() {
    const RowChoice greedy{.temperature = 0};
    const std::vector<RowChoice> mixed{greedy,
                                       {},
                                       {.temperature = 0.7},
                                       {.top_k = 40},
                                       {.top_p = 0.83},
                                       {.temperature = 1.3, .top_k = 90, .top_p = 0.61, .min_p = 0.02},
                                       {.min_p = 0.3},
                                       {.typical_p = 0.6},
                                       {.top_k = 1},
                                       {.temperature = 0.9, .top_p = 0.9, .typical_p = 0.8}};
    const std::vector<RowChoice> penalised{{.temperature = 0, .repetition = 1.3},
                                           {.repetition = 0.8, .presence = 0.4},
                                           {.top_k = 20, .frequency = 0.7},
                                           {.temperature = 0, .presence = 1.5, .frequency = 0.2},
                                           {}};
    const std::vector<RowChoice> many(20, RowChoice{});
    return {{17, {greedy, greedy, greedy}},
            {1, {{}, greedy}},
            {40000, {greedy, {}, {.top_k = 50, .top_p = 0.9}}, 0, 5},
            {1000, {greedy, greedy}, 0, 3, 0.0},  // all logits equal
            {50, many, 0, 2},
            {3001, mixed, 0, 1, 9.0},
            {5003, mixed, 4999, 20},
            {700, {{.top_k = 7, .top_p = 0.53}, {.top_p = 1e-9}, {.top_k = 700}}, 0, 0, 0.0},
            {1030, penalised, 1000, 4, 4.0, true},
            {1030, mixed, 0, 2, 4.0, false, true},
            {1030, mixed, 1001, 2, 4.0, false, false, true},
            {517, penalised, 0, 3, 3.0, true, true, true},
            {64, {{}, greedy}, 0, 0, 4.0, false, false, false, true},
            {64, {{}, greedy}, 0, 0, 4.0, false, false, false, false, false},
            {5, {}}};
  }
  /// Vocabularies of real models, more rows than a GPU has SMs, and flat distributions.
  static std::vector<Params> gpu_sweep() {
    const RowChoice greedy{.temperature = 0};
    std::vector<RowChoice> rows;
    for (int r = 0; r < 140; ++r)
      rows.push_back(r % 3 == 0 ? greedy : RowChoice{.top_k = 30.0 * (r % 2), .top_p = 0.95});
    return {{128256, {greedy, {}, {.temperature = 0.6, .top_k = 20, .top_p = 0.95}, {.top_p = 0.9}}, 0, 3, 12.0},
            {128256, {{.top_p = 0.99}, {.top_k = 20000}, {.typical_p = 0.5}}, 0, 0, 0.5},
            {32003, rows, 32000, 1, 6.0}};
  }
  static std::vector<Params> bench() {
    return {{128256, std::vector<RowChoice>(256, {.temperature = 0})},
            {128256, std::vector<RowChoice>(256, {.temperature = 0.8})},
            {128256, std::vector<RowChoice>(256, {.temperature = 0.8, .top_k = 50, .top_p = 0.95}), 0, 0, 12.0},
            {128256, {{.temperature = 0}}},
            {32000, std::vector<RowChoice>(64, {.temperature = 0.8})}};
  }
  static std::string describe(const Params& p) {
    const RowChoice first = p.rows.empty() ? RowChoice{} : p.rows[0];
    return str(p.size(), "x", p.vocab, " of ", p.allowed(), " temperature ", first.temperature, " top_k ", first.top_k,
               " top_p ", first.top_p, " top ", p.top, p.counts ? " counts" : "", p.bias ? " bias" : "",
               p.mask ? " mask" : "");
  }

  static double seed(int64_t row) { return static_cast<double>(row * 3 + 1); }
  static double drawn(int64_t row) { return static_cast<double>(row * 2 + 5); }
  static std::vector<Input> inputs(const Params& p) {
    const auto option = [&](double RowChoice::*member, DType dtype) {
      if (p.defaults) return absent();
      std::vector<double> values;
      for (const RowChoice& row : p.rows) values.push_back(row.*member);
      return Input{.shape = {p.size()}, .values = values, .dtype = dtype, .differentiable = false};
    };
    std::vector<double> seeds;
    std::vector<double> positions;
    for (int64_t r = 0; r < p.size(); ++r) {
      seeds.push_back(seed(r));
      positions.push_back(drawn(r));
    }
    std::vector<double> counts;
    std::vector<double> mask;
    for (int64_t n = 0; n < p.size() * p.vocab; ++n) {  // every third token in the prompt, every fifth in the answer
      const double occurrences = n % 5 == 0 ? static_cast<double>(n % 4) : 0.0;
      counts.push_back(n % 3 == 0 ? occurrences - 2147483648.0 : occurrences);
    }
    for (int64_t n = 0; n < p.size() * ((p.vocab + 31) / 32); ++n) mask.push_back(n % 4 == 3 ? 0.0 : 0x5a5a5a5a);
    return {{.shape = {p.size(), p.vocab}, .low = -p.spread, .high = p.spread},
            option(&RowChoice::temperature, DType::f32),
            option(&RowChoice::top_k, DType::i32),
            option(&RowChoice::top_p, DType::f32),
            option(&RowChoice::min_p, DType::f32),
            option(&RowChoice::typical_p, DType::f32),
            p.counts ? option(&RowChoice::repetition, DType::f32) : absent(),
            p.counts ? option(&RowChoice::presence, DType::f32) : absent(),
            p.counts ? option(&RowChoice::frequency, DType::f32) : absent(),
            p.defaults ? absent() : integers({p.size()}, seeds),
            p.defaults ? absent() : integers({p.size()}, positions),
            p.counts ? integers({p.size(), p.vocab}, counts, DType::i32) : absent(),
            p.bias ? Input{.shape = {p.size(), p.vocab}, .dtype = DType::f32, .differentiable = false} : absent(),
            p.mask ? integers({p.size(), (p.vocab + 31) / 32}, mask, DType::i32) : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const Device& device = in[0].device();
    Tensor ids = Tensor::zeros({p.size()}, DType::i64, device);
    Tensor logprobs = p.logprobs ? Tensor::zeros({p.size(), 1 + p.top}, DType::f32, device) : Tensor();
    Tensor top_ids = p.top > 0 ? Tensor::zeros({p.size(), p.top}, DType::i64, device) : Tensor();
    ops::sample_rows(in[0],
                     {.temperature = in[1],
                      .top_k = in[2],
                      .top_p = in[3],
                      .min_p = in[4],
                      .typical_p = in[5],
                      .repetition = in[6],
                      .presence = in[7],
                      .frequency = in[8],
                      .seed = in[9],
                      .drawn = in[10],
                      .counts = in[11],
                      .bias = in[12],
                      .mask = in[13]},
                     p.vocab_size, p.top, ids, logprobs, top_ids);
    std::vector<Tensor> results{ids};
    if (p.logprobs) results.push_back(logprobs);
    if (p.top > 0) results.push_back(top_ids);
    return results;
  }

  /// Adjusted logits of the allowed tokens of a row, by id.
  template <class S>
  static std::vector<std::pair<int64_t, S>> adjusted(const Params& p, const Arrays<S>& in, int64_t r) {
    const RowChoice& o = p.rows[static_cast<size_t>(r)];
    std::vector<std::pair<int64_t, S>> list;
    for (int64_t id = 0; id < p.allowed(); ++id) {
      if (p.mask) {
        const auto word = static_cast<int64_t>(in[13][r * ((p.vocab + 31) / 32) + id / 32]);
        if ((word >> (id % 32)) % 2 == 0) continue;
      }
      S logit = in[0][r * p.vocab + id];
      if (p.bias) logit += in[12][r * p.vocab + id];
      if (p.counts) {
        const int64_t n = r * p.vocab + id;  // the counts of inputs(): i32 values round in f32
        const int64_t occurrences = n % 5 == 0 ? n % 4 : 0;
        if (n % 3 == 0 || occurrences > 0) logit = logit < 0 ? logit * S(o.repetition) : logit / S(o.repetition);
        if (occurrences > 0) logit -= S(o.presence) + S(o.frequency) * S(occurrences);
      }
      list.emplace_back(id, logit);
    }
    return list;
  }

  /// By definition: sort tokens by probability, then let each filter truncate the list.
  template <class S>
  static int64_t choice(const Params& p, const Arrays<S>& in, int64_t r) {
    const RowChoice o = p.defaults ? RowChoice{} : p.rows[static_cast<size_t>(r)];
    auto list = adjusted(p, in, r);
    if (list.empty()) return -1;
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    if (o.temperature == 0) return list[0].first;
    size_t count = list.size();
    if (o.top_k > 0) count = std::min(count, static_cast<size_t>(o.top_k));
    while (count < list.size() && list[count].second == list[count - 1].second) ++count;
    // f32 options: the same numbers as the operator gets.
    const auto given = [](double option) { return static_cast<S>(static_cast<float>(option)); };
    const auto weight = [&](size_t place) {
      return std::exp((list[place].second - list[0].second) / given(o.temperature));
    };
    const auto total = [&] {
      S sum = 0;
      for (size_t i = 0; i < count; ++i) sum += weight(i);
      return sum;
    };
    const S all = total();
    S dropped = 0;
    while (count > 1 && o.top_p < 1 && (dropped + weight(count - 1)) / all <= S(1) - given(o.top_p)) {
      dropped += weight(--count);
    }
    while (weight(count - 1) < given(o.min_p)) --count;
    list.resize(count);
    if (o.typical_p < 1) {
      const S sum = total();
      const S most = list[0].second;
      S entropy = 0;
      for (size_t i = 0; i < count; ++i) entropy -= weight(i) / sum * std::log(weight(i) / sum);
      std::vector<std::pair<S, size_t>> nearest;
      for (size_t i = 0; i < count; ++i) nearest.emplace_back(std::abs(-std::log(weight(i) / sum) - entropy), i);
      std::sort(nearest.begin(), nearest.end());
      S held = 0;
      size_t kept = 0;
      while (kept < count && held < given(o.typical_p)) held += weight(nearest[kept++].second) / sum;
      while (kept < count && nearest[kept].first == nearest[kept - 1].first) ++kept;  // ties are kept
      std::vector<std::pair<int64_t, S>> typical;
      for (size_t i = 0; i < kept; ++i) typical.push_back(list[nearest[i].second]);
      // Weights stay relative to the largest logit of the whole list.
      std::sort(typical.begin(), typical.end());
      return drawn_token(p, o, r, typical, most);
    }
    const S most = list[0].second;
    std::sort(list.begin(), list.end());
    return drawn_token(p, o, r, list, most);
  }

  /// The first token whose cumulative probability exceeds the random number; the list is sorted by id.
  template <class S>
  static int64_t drawn_token(const Params& p, const RowChoice& o, int64_t r,
                             const std::vector<std::pair<int64_t, S>>& list, S most) {
    const auto mass = [&](const S& logit) {
      return std::exp((logit - most) / static_cast<S>(static_cast<float>(o.temperature)));
    };
    S all = 0;
    for (const auto& [id, logit] : list) all += mass(logit);
    const uint64_t key = p.defaults ? 0 : static_cast<uint64_t>(seed(r));
    const auto bits = philox({key, 0}, p.defaults ? 0 : static_cast<uint64_t>(drawn(r)));
    const double share = static_cast<double>((uint64_t{bits[0]} << 32U) | bits[1]) * 0x1p-64;
    S running = 0;
    for (const auto& [id, logit] : list) {
      running += mass(logit);
      if (static_cast<double>(running) > share * static_cast<double>(all)) return id;
    }
    return list.back().first;
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> ids({p.size()});
    Array<S> logprobs({p.size(), 1 + p.top});
    Array<S> top_ids({p.size(), p.top});
    for (int64_t r = 0; r < p.size(); ++r) {
      const int64_t id = choice(p, in, r);
      ids[r] = static_cast<S>(id);
      std::vector<std::pair<S, int64_t>> order;
      for (int64_t i = 0; i < p.allowed(); ++i) order.emplace_back(-in[0][r * p.vocab + i], i);
      std::sort(order.begin(), order.end());
      S sum = 0;
      for (const auto& [negated, i] : order) sum += std::exp(order[0].first - negated);
      const S total = std::log(sum) - order[0].first;
      logprobs[r * (1 + p.top)] = id < 0 ? -std::numeric_limits<S>::infinity() : in[0][r * p.vocab + id] - total;
      for (int64_t i = 0; i < p.top; ++i) {
        top_ids[r * p.top + i] = static_cast<S>(order[static_cast<size_t>(i)].second);
        logprobs[r * (1 + p.top) + 1 + i] = -order[static_cast<size_t>(i)].first - total;
      }
    }
    Arrays<S> results{ids};
    if (p.logprobs) results.push_back(logprobs);
    if (p.top > 0) results.push_back(top_ids);
    return results;
  }
};
LAMINA_OP_CASE(SampleRowsCase);

struct CountTokensCase {
  static constexpr const char* name = "count_tokens";
  static constexpr bool kBackward = false;
  struct Params {
    int64_t slots, vocab;
    std::vector<double> rows, ids;
  };
  static std::vector<Params> sweep() {
    return {{3, 7, {0, 2, 1}, {6, 0, 3}},
            {1, 1, {0}, {0}},
            {4, 300, {3, -1, 3, 3, 0}, {299, 5, 299, 1, 0}},
            {2, 5, {}, {}}};
  }
  static std::vector<Params> bench() { return {}; }
  static std::string describe(const Params& p) { return str(p.ids.size(), " of ", p.slots, "x", p.vocab); }
  static std::vector<Input> inputs(const Params& p) {
    std::vector<double> counts(static_cast<size_t>(p.slots * p.vocab));
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<double>(i % 9);
    const auto size = static_cast<int64_t>(p.ids.size());
    return {integers({p.slots, p.vocab}, counts, DType::i32), integers({size}, p.rows, DType::i32),
            integers({size}, p.ids)};
  }
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    const Tensor counts = in[0].clone();
    ops::count_tokens(counts, in[1], in[2]);
    return {counts};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> counts = in[0];
    for (size_t i = 0; i < p.ids.size(); ++i) {
      if (p.rows[i] >= 0) counts[static_cast<int64_t>(p.rows[i]) * p.vocab + static_cast<int64_t>(p.ids[i])] += S(1);
    }
    return {counts};
  }
};
LAMINA_OP_CASE(CountTokensCase);

}  // namespace
}  // namespace lamina::testing
