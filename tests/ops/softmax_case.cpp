#include "lamina/ops/loss/softmax.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

template <class S>
Array<S> softmax_oracle(const Array<S>& x, bool log_of) {
  using std::exp;
  using std::log;
  Array<S> y(x.shape);
  const int64_t width = x.shape[-1];
  for (int64_t start = 0; start < x.numel(); start += width) {
    double most = value_of(x[start]);
    for (int64_t i = 1; i < width; ++i) most = std::max(most, value_of(x[start + i]));
    S sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += exp(x[start + i] - S(most));
    for (int64_t i = 0; i < width; ++i) {
      const S shifted = x[start + i] - S(most);
      y[start + i] = log_of ? shifted - log(sum) : exp(shifted) / sum;
    }
  }
  return y;
}

struct SoftmaxCase {
  static constexpr const char* name = "softmax";
  struct Params {
    Shape shape;
    double range = 1.0;
  };
  static std::vector<Params> sweep() {
    return {{{3, 17}},  {{1, 1}},    {{2, 5, 64}, 20}, {{0, 8}},       {{3, 0}},    {{2, 1000}, 5},
            {{300, 7}}, {{40, 450}}, {{9, 264}},       {{3, 2200}, 9}, {{1, 17000}}};
  }
  static std::vector<Params> bench() { return {{{18432, 256}}, {{2048, 50304}}}; }
  static std::string describe(const Params& p) { return str(p.shape); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape, .low = -p.range, .high = p.range}}; }
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) { return {ops::softmax(in[0])}; }
  template <class S>
  static Arrays<S> oracle(const Params& /*p*/, const Arrays<S>& in) {
    return {softmax_oracle(in[0], false)};
  }
};
LAMINA_OP_CASE(SoftmaxCase);

struct LogSoftmaxCase {
  static constexpr const char* name = "log_softmax";
  using Params = SoftmaxCase::Params;
  static std::vector<Params> sweep() { return SoftmaxCase::sweep(); }
  static std::vector<Params> bench() { return SoftmaxCase::bench(); }
  static std::string describe(const Params& p) { return SoftmaxCase::describe(p); }
  static std::vector<Input> inputs(const Params& p) { return SoftmaxCase::inputs(p); }
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    return {ops::log_softmax(in[0])};
  }
  template <class S>
  static Arrays<S> oracle(const Params& /*p*/, const Arrays<S>& in) {
    return {softmax_oracle(in[0], true)};
  }
};
LAMINA_OP_CASE(LogSoftmaxCase);

}  // namespace
}  // namespace lamina::testing
