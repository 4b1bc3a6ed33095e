#include <algorithm>

#include "lamina/ops/moe/route.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::RouterScore;

struct RouteTopKCase {
  static constexpr const char* name = "route_top_k";
  struct Params {
    int64_t tokens;
    int64_t experts;
    ops::RouteOptions options;
    bool bias = false;
  };

  static std::vector<Params> sweep() {
    return {{5, 8, {.k = 2}},
            {1, 1, {.k = 1, .normalize = true}},
            {0, 4, {.k = 1}},
            {7, 9, {.k = 3, .normalize = true, .scale = 2.5}},
            {6, 8, {.k = 2, .score = RouterScore::softmax_of_chosen}},
            {9, 17, {.k = 17, .score = RouterScore::softmax_of_chosen, .scale = 0.5}, true},
            {5, 16, {.k = 4, .score = RouterScore::sigmoid}},
            {6, 16, {.k = 3, .score = RouterScore::sigmoid, .normalize = true, .scale = 2.5}, true},
            {8, 24, {.k = 4, .score = RouterScore::sigmoid, .normalize = true, .groups = 6, .chosen_groups = 3}, true},
            {8, 24, {.k = 2, .groups = 8, .chosen_groups = 2, .group_best = 1}},
            {7, 6, {.k = 2, .score = RouterScore::softmax_of_near, .near = 0.4}},
            {9, 33, {.k = 5, .score = RouterScore::softmax_of_near, .scale = 1.5, .near = 0.2}},
            {300, 64, {.k = 6, .normalize = true}, true},
            {40, 130, {.k = 8, .score = RouterScore::softmax, .normalize = false}}};
  }
  static std::vector<Params> bench() {
    return {
        {8192, 8, {.k = 2, .score = RouterScore::softmax_of_chosen}},
        {8192, 256, {.k = 8, .score = RouterScore::sigmoid, .normalize = true, .groups = 8, .chosen_groups = 4}, true}};
  }
  static std::string describe(const Params& p) {
    const char* scores[] = {"softmax", "softmax of chosen", "sigmoid", "softmax of near"};
    return str(p.tokens, " tokens, ", p.options.k, " of ", p.experts, " experts, ",
               scores[static_cast<int>(p.options.score)], p.options.normalize ? " normalised" : "",
               p.options.groups > 1 ? str(" groups ", p.options.chosen_groups, "/", p.options.groups) : "",
               p.bias ? " biased" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    Input bias = {.shape = {p.experts}, .low = -0.3, .high = 0.3, .differentiable = false};
    return {{.shape = {p.tokens, p.experts}, .low = -3, .high = 3}, p.bias ? bias : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const auto out = ops::route_top_k(in[0], p.options, in[1]);
    return {out.weights, out.indices, out.counts};
  }

  /// Indices of the `k` largest values, by repeated search.
  static std::vector<int64_t> largest(const std::vector<double>& values, int64_t k) {
    std::vector<int64_t> chosen;
    while (static_cast<int64_t>(chosen.size()) < k) {
      int64_t best = -1;
      for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
        if (std::count(chosen.begin(), chosen.end(), i) > 0) continue;
        if (best < 0 || values[static_cast<size_t>(i)] > values[static_cast<size_t>(best)]) best = i;
      }
      chosen.push_back(best);
    }
    return chosen;
  }

  static std::vector<int64_t> choose(const ops::RouteOptions& o, std::vector<double> values) {
    if (o.groups > 1) {
      const int64_t size = static_cast<int64_t>(values.size()) / o.groups;
      std::vector<double> quality;
      for (int64_t g = 0; g < o.groups; ++g) {
        std::vector<double> members(values.begin() + g * size, values.begin() + (g + 1) * size);
        std::sort(members.rbegin(), members.rend());
        double sum = 0;
        for (int64_t i = 0; i < o.group_best; ++i) sum += members[static_cast<size_t>(i)];
        quality.push_back(sum);
      }
      const auto open = largest(quality, o.chosen_groups);
      for (size_t e = 0; e < values.size(); ++e) {
        if (std::count(open.begin(), open.end(), static_cast<int64_t>(e) / size) == 0) values[e] = -1e30;
      }
    }
    return largest(values, o.k);
  }

  /// Softmax of choice `j` among the experts that were not chosen before it and have logits near its own.
  template <class S>
  static S near_weight(double near, const std::vector<S>& logits, const std::vector<int64_t>& chosen, int64_t j) {
    using std::exp;
    const S own = logits[static_cast<size_t>(chosen[static_cast<size_t>(j)])];
    S sum = 0;
    for (int64_t e = 0; e < static_cast<int64_t>(logits.size()); ++e) {
      if (std::count(chosen.begin(), chosen.begin() + j, e) > 0) continue;
      const double z = value_of(logits[static_cast<size_t>(e)]);
      const double distance = (value_of(own) - z) / std::max(std::abs(z), value_of(own));
      if (distance <= near) sum += exp(logits[static_cast<size_t>(e)] - own);
    }
    return S(1) / sum;
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    const auto& o = p.options;
    Array<S> weights({p.tokens, o.k});
    Array<S> indices({p.tokens, o.k});
    Array<S> counts({p.experts});
    for (int64_t t = 0; t < p.tokens; ++t) {
      std::vector<S> score(static_cast<size_t>(p.experts));
      S sum = 0;
      for (int64_t e = 0; e < p.experts; ++e) sum += exp(in[0][t * p.experts + e]);
      for (int64_t e = 0; e < p.experts; ++e) {
        const S z = in[0][t * p.experts + e];
        score[static_cast<size_t>(e)] = o.score == RouterScore::softmax   ? exp(z) / sum
                                        : o.score == RouterScore::sigmoid ? S(1) / (S(1) + exp(-z))
                                                                          : z;
      }
      std::vector<double> values;
      for (int64_t e = 0; e < p.experts; ++e) {
        values.push_back(value_of(score[static_cast<size_t>(e)]) + (p.bias ? value_of(in[1][e]) : 0.0));
      }
      const auto chosen = choose(o, values);
      if (o.score == RouterScore::softmax_of_near) {
        for (int64_t j = 0; j < o.k; ++j) {
          const int64_t e = chosen[static_cast<size_t>(j)];
          weights[t * o.k + j] = S(o.scale) * near_weight(o.near, score, chosen, j);
          indices[t * o.k + j] = S(e);
          counts[e] += S(1);
        }
        continue;
      }
      S total = 0;
      for (const int64_t e : chosen) {
        S& s = score[static_cast<size_t>(e)];
        if (o.score == RouterScore::softmax_of_chosen) s = exp(s);
        total += s;
        counts[e] += S(1);
      }
      const bool divide = o.normalize || o.score == RouterScore::softmax_of_chosen;
      for (int64_t j = 0; j < o.k; ++j) {
        const int64_t e = chosen[static_cast<size_t>(j)];
        weights[t * o.k + j] = score[static_cast<size_t>(e)] / (divide ? total : S(1)) * S(o.scale);
        indices[t * o.k + j] = S(e);
      }
    }
    return {weights, indices, counts};
  }
};
LAMINA_OP_CASE(RouteTopKCase);

}  // namespace
}  // namespace lamina::testing
