#include "lamina/ops/ssm/wkv.h"

#include <algorithm>

#include "support/op_case.h"

namespace lamina::testing {
namespace {

[[maybe_unused]] double number_of(double x) { return x; }
[[maybe_unused]] double number_of(float x) { return static_cast<double>(x); }
template <class S>
double number_of(const Rev<S>& x) {
  return static_cast<double>(x.value);
}

struct WkvCase {
  static constexpr const char* name = "wkv";
  struct Params {
    int64_t batch;
    int64_t seq;
    int64_t channels;
    bool state = false;
    double range = 1.0;  ///< of keys; exponentials of large ones overflow without a common factor
  };

  static std::vector<Params> sweep() {
    return {{2, 5, 3, true}, {1, 1, 1},         {1, 1, 5, true}, {0, 3, 4, true}, {2, 0, 3, true},      {2, 0, 3},
            {1, 70, 17},     {1, 129, 2, true}, {3, 6, 70},      {1, 7, 0, true}, {2, 9, 5, true, 150}, {1, 20, 33}};
  }
  static std::vector<Params> bench() { return {{1, 2048, 2560}, {4, 512, 2560}, {8, 1, 2560, true}}; }
  static std::string describe(const Params& p) {
    return str("[", p.batch, ",", p.seq, ",", p.channels, "]", p.state ? " state" : "",
               p.range > 1 ? " large keys" : "");
  }
  /// The state of every other batch entry is empty.
  static std::vector<double> states(const Params& p) {
    std::vector<double> values;
    for (int64_t i = 0; i < p.batch * 3 * p.channels; ++i) {
      const int64_t part = i / p.channels % 3;
      const double full = part == 0 ? 0.5 - static_cast<double>(i % 7) / 4 : part == 1 ? 1.25 : 0.5;
      values.push_back(i / (3 * p.channels) % 2 == 0 ? full : 0.0);
    }
    return values;
  }
  static std::vector<Input> inputs(const Params& p) {
    const Shape rows{p.batch, p.seq, p.channels};
    const Shape state{p.batch, 3, p.channels};
    return {{.shape = rows, .low = -p.range, .high = p.range},
            {.shape = rows},
            {.shape = {p.channels}, .low = -4, .high = 1},
            {.shape = {p.channels}, .low = -1, .high = 2},
            p.state ? Input{.shape = state, .values = states(p), .differentiable = false} : absent()};
  }
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    return {ops::wkv(in[0], in[1], in[2], in[3], in[4]).y};
  }

  /// Σ exp(exponent − largest) · value over terms, and the same without values.
  template <class S>
  struct Sums {
    std::vector<S> exponents;
    std::vector<S> above;  ///< the value of each term
    std::vector<S> below;  ///< the count of each term: 1, or that of the state

    void put(const S& exponent, const S& value, const S& count) {
      exponents.push_back(exponent);
      above.push_back(value);
      below.push_back(count);
    }
    double largest() const {
      double most = -1e30;
      for (const S& exponent : exponents) most = std::max(most, number_of(exponent));
      return most;
    }
    S total(const std::vector<S>& values) const {
      using std::exp;
      const double most = largest();
      S sum(0);
      for (size_t i = 0; i < values.size(); ++i) sum += exp(exponents[i] - S(most)) * values[i];
      return sum;
    }
  };

  /// All earlier positions and the state as weighted terms, as seen from position `end`.
  template <class S>
  static Sums<S> before(const Params& p, const Arrays<S>& in, int64_t b, int64_t c, int64_t end) {
    using std::exp;
    const S w = -exp(in[2][c]);
    Sums<S> sums;
    if (p.state && number_of(in[4][(b * 3 + 1) * p.channels + c]) != 0) {
      const auto part = [&](int64_t i) { return in[4][(b * 3 + i) * p.channels + c]; };
      sums.put(part(2) + S(static_cast<double>(end)) * w, part(0), part(1));
    }
    for (int64_t t = 0; t < end; ++t) {
      const int64_t at = (b * p.seq + t) * p.channels + c;
      sums.put(in[0][at] + S(static_cast<double>(end - 1 - t)) * w, in[1][at], S(1));
    }
    return sums;
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> y({p.batch, p.seq, p.channels});
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t c = 0; c < p.channels; ++c) {
        for (int64_t t = 0; t < p.seq; ++t) {
          const int64_t at = (b * p.seq + t) * p.channels + c;
          Sums<S> sums = before(p, in, b, c, t);
          sums.put(in[0][at] + in[3][c], in[1][at], S(1));
          y[at] = sums.total(sums.above) / sums.total(sums.below);
        }
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(WkvCase);

/// The last state, which has no gradient.
struct WkvStateCase : WkvCase {
  static constexpr const char* form = "state";
  static constexpr bool kBackward = false;

  static std::vector<Params> bench() { return {}; }
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    return {ops::wkv(in[0], in[1], in[2], in[3], in[4]).last_state};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> last({p.batch, 3, p.channels});
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t c = 0; c < p.channels; ++c) {
        const Sums<S> sums = before(p, in, b, c, p.seq);
        last[b * 3 * p.channels + c] = sums.total(sums.above);
        last[(b * 3 + 1) * p.channels + c] = sums.total(sums.below);
        last[(b * 3 + 2) * p.channels + c] = S(sums.exponents.empty() ? 0.0 : sums.largest());
      }
    }
    return {last};
  }
};
LAMINA_OP_CASE(WkvStateCase);

}  // namespace
}  // namespace lamina::testing
