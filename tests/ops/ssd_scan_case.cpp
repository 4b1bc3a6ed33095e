#include <algorithm>

#include "lamina/ops/ssm/ssd_scan.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct SsdScanCase {
  static constexpr const char* name = "ssd_scan";
  struct Params {
    int64_t batch;
    int64_t seq;
    int64_t heads;
    int64_t p;
    int64_t groups;
    int64_t n;
    int64_t chunk = 64;
    bool d = false;
    bool bias = false;
    bool state = false;
    bool softplus = false;
    double dt_min = 0.0;
    double dt_max = 1e30;
  };

  static std::vector<Params> sweep() {
    return {{2, 5, 4, 3, 2, 4, 3, true, true, true, true},
            {1, 1, 1, 1, 1, 1},
            {2, 1, 2, 3, 1, 5, 64, true, true, true, true},
            {0, 3, 2, 4, 1, 2, 2, true, false, true},
            {1, 0, 2, 4, 2, 3, 2, true, true, true},
            {1, 37, 2, 5, 1, 3, 16, false, true, false, true},
            {1, 67, 1, 2, 1, 2, 64, true, false, true, false},
            {1, 9, 18, 2, 2, 3, 4, false, false, true, true, 0.3, 0.8},
            {1, 6, 2, 33, 2, 17, 1, true, true, false, true},
            {1, 4, 2, 0, 1, 3, 2, true},
            {1, 4, 2, 3, 1, 0, 2, true},
            {1, 20, 3, 4, 3, 18, 7, true, false, false, true, 0.01, 0.5},
            {1, 3, 1, 66, 1, 65, 2, true, true, true, true},
            {1, 130, 2, 72, 1, 24, 64, true, true, true, true},
            {1, 70, 2, 16, 2, 128, 256, false, false, false, true},
            {1, 100, 4, 24, 2, 40, 64, true, true, true, true, 0.05, 0.9}};
  }
  static std::vector<Params> bench() { return {{1, 2048, 24, 64, 1, 128, 64, true, true, false, true}}; }
  static std::string describe(const Params& p) {
    return str("[", p.batch, ",", p.seq, ",", p.heads, ",", p.p, "] groups ", p.groups, " n ", p.n, " chunk ", p.chunk,
               p.d ? " d" : "", p.bias ? " bias" : "", p.state ? " state" : "", p.softplus ? " softplus" : "",
               p.dt_max < 1e30 ? " clamped" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    const Shape mixed{p.batch, p.seq, p.groups, p.n};
    return {{.shape = {p.batch, p.seq, p.heads, p.p}},
            {.shape = {p.batch, p.seq, p.heads}, .low = p.softplus ? -3.0 : 0.05, .high = 0.7},
            {.shape = {p.heads}, .low = -2, .high = -0.1},
            {.shape = mixed},
            {.shape = mixed},
            p.d ? Input{.shape = {p.heads}} : absent(),
            p.bias ? Input{.shape = {p.heads}, .low = 0, .high = 0.2} : absent(),
            p.state ? Input{.shape = {p.batch, p.heads, p.p, p.n}} : absent()};
  }
  static ops::SsdExtras extras(const Params& p, const std::vector<Tensor>& in) {
    return {.d = in[5],
            .dt_bias = in[6],
            .initial_state = in[7],
            .dt_softplus = p.softplus,
            .dt_min = p.dt_min,
            .dt_max = p.dt_max,
            .chunk_size = p.chunk};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const auto out = ops::ssd_scan(in[0], in[1], in[2], in[3], in[4], extras(p, in));
    return {out.y, out.last_state};
  }

  /// The plain recurrence over positions.
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    using std::log;
    Array<S> y({p.batch, p.seq, p.heads, p.p});
    Array<S> last({p.batch, p.heads, p.p, p.n});
    if (p.state) last.values = in[7].values;
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t t = 0; t < p.seq; ++t) {
        for (int64_t h = 0; h < p.heads; ++h) {
          const int64_t row = (b * p.seq + t) * p.heads + h;
          S step = in[1][row];
          if (p.bias) step += in[6][h];
          if (p.softplus) step = log(S(1) + exp(step));
          if (value_of(step) < p.dt_min) step = S(p.dt_min);
          if (value_of(step) > p.dt_max) step = S(p.dt_max);
          const S decay = exp(step * in[2][h]);
          const int64_t mixed = ((b * p.seq + t) * p.groups + h / (p.heads / p.groups)) * p.n;
          for (int64_t i = 0; i < p.p; ++i) {
            const S x = in[0][row * p.p + i];
            S sum = p.d ? in[5][h] * x : S(0);
            for (int64_t j = 0; j < p.n; ++j) {
              S& state = last[((b * p.heads + h) * p.p + i) * p.n + j];
              state = decay * state + step * x * in[3][mixed + j];
              sum += state * in[4][mixed + j];
            }
            y[row * p.p + i] = sum;
          }
        }
      }
    }
    return {y, last};
  }
};
LAMINA_OP_CASE(SsdScanCase);

struct SsdStepCase {
  static constexpr const char* name = "ssd_step";
  static constexpr bool kBackward = false;
  using Params = SsdScanCase::Params;
  static std::vector<Params> sweep() {
    return {{2, 1, 4, 3, 2, 5, 64, true, true, true, true},
            {1, 1, 1, 1, 1, 1, 64, false, false, true},
            {0, 1, 2, 3, 1, 2, 64, true, false, true},
            {1, 1, 6, 64, 1, 65, 64, true, false, true, true, 0.1, 0.5}};
  }
  static std::vector<Params> bench() { return {{1, 1, 24, 64, 1, 128, 64, true, true, true, true}}; }
  static std::string describe(const Params& p) { return SsdScanCase::describe(p); }
  static std::vector<Input> inputs(const Params& p) {
    std::vector<Input> inputs = SsdScanCase::inputs(p);
    inputs[0].shape = {p.batch, p.heads, p.p};
    inputs[1].shape = {p.batch, p.heads};
    inputs[3].shape = inputs[4].shape = {p.batch, p.groups, p.n};
    return inputs;
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    ops::SsdExtras extras = SsdScanCase::extras(p, in);
    Tensor state = extras.initial_state.to(accumulation_type(in[0].dtype())).clone();
    extras.initial_state = {};
    const Tensor y = ops::ssd_step(in[0], in[1], in[2], in[3], in[4], state, extras);
    return {y, state};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Arrays<S> out = SsdScanCase::oracle<S>(p, in);
    out[0].shape = {p.batch, p.heads, p.p};
    return out;
  }
};
LAMINA_OP_CASE(SsdStepCase);

}  // namespace
}  // namespace lamina::testing
