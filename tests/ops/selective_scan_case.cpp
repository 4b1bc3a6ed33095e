#include "lamina/ops/ssm/selective_scan.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct SelectiveScanCase {
  static constexpr const char* name = "selective_scan";
  struct Params {
    int64_t batch;
    int64_t seq;
    int64_t channels;
    int64_t n;
    bool d = false;
    bool z = false;
    bool bias = false;
    bool state = false;
    bool softplus = false;
  };

  static std::vector<Params> sweep() {
    return {{2, 5, 3, 4, true, true, true, true, true},      {1, 1, 1, 1},
            {1, 1, 5, 2, true, false, true, true, true},     {0, 3, 4, 2, true, true, true, true, true},
            {2, 0, 3, 2, true, false, true, true},           {1, 70, 17, 3, false, true, false, false, true},
            {1, 129, 2, 2, true, false, false, true, false}, {2, 6, 70, 5, false, true, true, false, true},
            {1, 7, 33, 18, true, true, false, true, true},   {1, 4, 18, 35, false, false, true, false, true},
            {1, 3, 5, 70, true, true, true, true, true}};
  }
  static std::vector<Params> bench() {
    return {{1, 2048, 1536, 16, true, true, true, false, true}, {4, 512, 1536, 16, true, true, true, false, true}};
  }
  static std::string describe(const Params& p) {
    return str("[", p.batch, ",", p.seq, ",", p.channels, "] n ", p.n, p.d ? " d" : "", p.z ? " z" : "",
               p.bias ? " bias" : "", p.state ? " state" : "", p.softplus ? " softplus" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    const Shape rows{p.batch, p.seq, p.channels};
    const Shape mixed{p.batch, p.seq, p.n};
    Input delta{.shape = rows, .low = p.softplus ? -3.0 : 0.01, .high = p.softplus ? 0.5 : 0.7};
    return {{.shape = rows},
            delta,
            {.shape = {p.channels, p.n}, .low = -3, .high = -0.1},
            {.shape = mixed},
            {.shape = mixed},
            p.d ? Input{.shape = {p.channels}} : absent(),
            p.z ? Input{.shape = rows, .low = -2, .high = 2} : absent(),
            p.bias ? Input{.shape = {p.channels}, .low = -0.2, .high = 0.2} : absent(),
            p.state ? Input{.shape = {p.batch, p.channels, p.n}} : absent()};
  }
  static ops::SelectiveScanExtras extras(const Params& p, const std::vector<Tensor>& in) {
    return {.d = in[5], .z = in[6], .delta_bias = in[7], .initial_state = in[8], .delta_softplus = p.softplus};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const auto out = ops::selective_scan(in[0], in[1], in[2], in[3], in[4], extras(p, in));
    return {out.y, out.last_state};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    using std::log;
    Array<S> y({p.batch, p.seq, p.channels});
    Array<S> last({p.batch, p.channels, p.n});
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t ch = 0; ch < p.channels; ++ch) {
        std::vector<S> h(static_cast<size_t>(p.n), S(0));
        for (int64_t i = 0; i < p.n && p.state; ++i) h[static_cast<size_t>(i)] = in[8][(b * p.channels + ch) * p.n + i];
        for (int64_t t = 0; t < p.seq; ++t) {
          const int64_t at = (b * p.seq + t) * p.channels + ch;
          S step = in[1][at];
          if (p.bias) step += in[7][ch];
          if (p.softplus) step = log(S(1) + exp(step));
          S sum = p.d ? in[5][ch] * in[0][at] : S(0);
          for (int64_t i = 0; i < p.n; ++i) {
            S& state = h[static_cast<size_t>(i)];
            const int64_t mixed = (b * p.seq + t) * p.n + i;
            state = exp(step * in[2][ch * p.n + i]) * state + step * in[3][mixed] * in[0][at];
            sum += in[4][mixed] * state;
          }
          y[at] = p.z ? sum * in[6][at] / (S(1) + exp(-in[6][at])) : sum;
        }
        for (int64_t i = 0; i < p.n; ++i) last[(b * p.channels + ch) * p.n + i] = h[static_cast<size_t>(i)];
      }
    }
    return {y, last};
  }
};
LAMINA_OP_CASE(SelectiveScanCase);

struct SelectiveScanStepCase {
  static constexpr const char* name = "selective_scan_step";
  static constexpr bool kBackward = false;
  using Params = SelectiveScanCase::Params;
  static std::vector<Params> sweep() {
    return {{2, 1, 5, 3, true, true, true, true, true},
            {1, 1, 1, 1, false, false, false, true},
            {0, 1, 4, 2, true, false, false, true, true},
            {3, 1, 300, 16, false, true, false, true, true},
            {1, 1, 7, 33, true, false, true, true, false}};
  }
  static std::vector<Params> bench() { return {{1, 1, 1536, 16, true, true, true, true, true}}; }
  static std::string describe(const Params& p) { return SelectiveScanCase::describe(p); }
  static std::vector<Input> inputs(const Params& p) {
    std::vector<Input> inputs = SelectiveScanCase::inputs(p);
    for (const size_t i : {0, 1, 6}) {
      if (!inputs[i].absent) inputs[i].shape = {p.batch, p.channels};
    }
    for (const size_t i : {3, 4}) inputs[i].shape = {p.batch, p.n};
    return inputs;
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    ops::SelectiveScanExtras extras = SelectiveScanCase::extras(p, in);
    Tensor state = extras.initial_state.to(accumulation_type(in[0].dtype())).clone();
    extras.initial_state = {};
    const Tensor y = ops::selective_scan_step(in[0], in[1], in[2], in[3], in[4], state, extras);
    return {y, state};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Arrays<S> out = SelectiveScanCase::oracle<S>(p, in);
    out[0].shape = {p.batch, p.channels};
    return out;
  }
};
LAMINA_OP_CASE(SelectiveScanStepCase);

}  // namespace
}  // namespace lamina::testing
