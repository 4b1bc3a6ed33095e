#include "lamina/ops/ssm/gated_delta.h"

#include <algorithm>
#include <cmath>

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct GatedDeltaCase {
  static constexpr const char* name = "gated_delta";
  struct Params {
    int64_t batch;
    int64_t seq;
    int64_t key_heads;
    int64_t heads;
    int64_t d_k;
    int64_t d_v;
    bool state = false;
  };

  static std::vector<Params> sweep() {
    return {{2, 5, 1, 2, 3, 4, true}, {1, 1, 1, 1, 1, 1},       {1, 1, 2, 2, 4, 3, true},
            {0, 3, 1, 1, 2, 2, true}, {2, 0, 1, 1, 2, 3, true}, {1, 7, 1, 2, 0, 3},
            {1, 7, 1, 2, 3, 0},       {1, 30, 1, 1, 5, 17},     {1, 9, 2, 4, 6, 33, true}};
  }
  static std::vector<Params> bench() { return {{1, 1024, 16, 32, 128, 128}, {8, 1, 16, 32, 128, 128, true}}; }
  static std::string describe(const Params& p) {
    return str("[", p.batch, ",", p.seq, ",", p.key_heads, ",", p.d_k, "] values [", p.heads, ",", p.d_v, "]",
               p.state ? " state" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    const Shape keys{p.batch, p.seq, p.key_heads, p.d_k};
    const Shape gates{p.batch, p.seq, p.heads};
    const double most = 0.9 / std::sqrt(static_cast<double>(std::max<int64_t>(p.d_k, 1)));  // |k| < 1: stable
    return {{.shape = keys},
            {.shape = keys, .low = -most, .high = most},
            {.shape = {p.batch, p.seq, p.heads, p.d_v}},
            {.shape = gates, .low = -2, .high = 0},
            {.shape = gates, .low = 0, .high = 1},
            p.state ? Input{.shape = {p.batch, p.heads, p.d_k, p.d_v}} : absent()};
  }
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    const auto out = ops::gated_delta(in[0], in[1], in[2], in[3], in[4], in[5]);
    return {out.y, out.last_state};
  }

  /// One column of one head at a time.
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    Array<S> y({p.batch, p.seq, p.heads, p.d_v});
    Array<S> last({p.batch, p.heads, p.d_k, p.d_v});
    for (int64_t row = 0; row < p.batch * p.heads * p.d_v; ++row) {
      const int64_t j = row % p.d_v;
      const int64_t h = row / p.d_v % p.heads;
      const int64_t b = row / p.d_v / p.heads;
      const auto state_at = [&](int64_t i) { return ((b * p.heads + h) * p.d_k + i) * p.d_v + j; };
      std::vector<S> s;
      for (int64_t i = 0; i < p.d_k; ++i) s.push_back(p.state ? in[5][state_at(i)] : S(0));
      for (int64_t t = 0; t < p.seq; ++t) {
        const int64_t gate = (b * p.seq + t) * p.heads + h;
        const int64_t key = ((b * p.seq + t) * p.key_heads + h / (p.heads / p.key_heads)) * p.d_k;
        S held(0);
        for (int64_t i = 0; i < p.d_k; ++i) {
          S& x = s[static_cast<size_t>(i)];
          x = exp(in[3][gate]) * x;
          held += x * in[1][key + i];
        }
        const S change = in[4][gate] * (in[2][gate * p.d_v + j] - held);
        S sum(0);
        for (int64_t i = 0; i < p.d_k; ++i) {
          S& x = s[static_cast<size_t>(i)];
          x += in[1][key + i] * change;
          sum += x * in[0][key + i];
        }
        y[gate * p.d_v + j] = sum;
      }
      for (int64_t i = 0; i < p.d_k; ++i) last[state_at(i)] = s[static_cast<size_t>(i)];
    }
    return {y, last};
  }
};
LAMINA_OP_CASE(GatedDeltaCase);

}  // namespace
}  // namespace lamina::testing
