#include "lamina/ops/activation/xielu.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct XieluCase {
  static constexpr const char* name = "xielu";
  struct Params {
    Shape shape;
    ops::XieluOptions options = {};
    double range = 3.0;
  };
  static std::vector<Params> sweep() {
    return {{{3, 17}},           {{1}}, {{0, 4}}, {{5, 41}, {}, 30.0}, {{4, 65}, {.beta = 0.3, .eps = -0.4}},
            {{3, 3001}, {}, 1.0}};
  }
  static std::vector<Params> bench() { return {{{3072, 1536}}}; }
  static std::string describe(const Params& p) {
    return str(p.shape, " up to ", p.range, ", beta ", p.options.beta, ", eps ", p.options.eps);
  }
  static std::vector<Input> inputs(const Params& p) {
    const Input learned{.shape = {1}, .low = -1.5, .high = 1.5};
    return {{.shape = p.shape, .low = -p.range, .high = p.range}, learned, learned};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::xielu(in[0], in[1], in[2], p.options)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    using std::expm1;
    using std::log;
    const S beta = S(p.options.beta);
    const S rise = log(S(1) + exp(in[1][0]));
    const S fall = beta + log(S(1) + exp(in[2][0]));
    Array<S> y(p.shape);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const S x = in[0][i];
      const S cut = value_of(x) < p.options.eps ? x : S(p.options.eps);
      y[i] = value_of(x) > 0 ? rise * x * x + beta * x : fall * (expm1(cut) - x) + beta * x;
    }
    return {y};
  }
};
LAMINA_OP_CASE(XieluCase);

}  // namespace
}  // namespace lamina::testing
