#include "lamina/ops/ssm/rg_lru.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct RgLruCase {
  static constexpr const char* name = "rg_lru";
  struct Params {
    int64_t batch;
    int64_t seq;
    int64_t channels;
    bool state = false;
    bool begun = false;
  };

  static std::vector<Params> sweep() {
    return {{2, 5, 3, true, true}, {1, 1, 1},
            {1, 1, 5, true, true}, {0, 3, 4, true, true},
            {2, 0, 3, true},       {1, 70, 17},
            {1, 129, 2, true},     {3, 6, 70, false, true},
            {1, 7, 0, true},       {2, 33, 33, true, true}};
  }
  static std::vector<Params> bench() { return {{1, 2048, 2560}, {4, 512, 2560}, {8, 1, 2560, true, true}}; }
  static std::string describe(const Params& p) {
    return str("[", p.batch, ",", p.seq, ",", p.channels, "]", p.state ? " state" : "", p.begun ? " begun" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    const Shape rows{p.batch, p.seq, p.channels};
    std::vector<double> begun;
    for (int64_t i = 0; i < p.batch; ++i) begun.push_back(static_cast<double>(i % 2 == 0));
    return {{.shape = rows},
            {.shape = rows, .low = -2, .high = 2},
            {.shape = rows, .low = -2, .high = 2},
            {.shape = {p.channels}, .low = -4, .high = 0.5},
            p.state ? Input{.shape = {p.batch, p.channels}} : absent(),
            p.begun ? Input{.shape = {p.batch}, .values = begun, .differentiable = false} : absent()};
  }
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    const auto out = ops::rg_lru(in[0], in[1], in[2], in[3], in[4], in[5]);
    return {out.y, out.last_state};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    using std::log;
    using std::sqrt;
    Array<S> y({p.batch, p.seq, p.channels});
    Array<S> last({p.batch, p.channels});
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t ch = 0; ch < p.channels; ++ch) {
        S h = p.state ? in[4][b * p.channels + ch] : S(0);
        const S rate = S(8) * log(S(1) + exp(in[3][ch]));
        for (int64_t t = 0; t < p.seq; ++t) {
          const int64_t at = (b * p.seq + t) * p.channels + ch;
          const S a = exp(-rate / (S(1) + exp(-in[2][at])));
          const bool first = t == 0 && !(p.begun && b % 2 == 0);
          const S gated = in[0][at] / (S(1) + exp(-in[1][at]));
          h = a * h + (first ? gated : sqrt(S(1) - a * a) * gated);
          y[at] = h;
        }
        last[b * p.channels + ch] = h;
      }
    }
    return {y, last};
  }
};
LAMINA_OP_CASE(RgLruCase);

}  // namespace
}  // namespace lamina::testing
