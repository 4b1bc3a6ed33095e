#include "lamina/ops/elementwise/clamp.h"

#include "lamina/base/error.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct ClampCase {
  static constexpr const char* name = "clamp";
  struct Params {
    Shape shape;
    double low;
    double high;
  };
  static std::vector<Params> sweep() {
    return {{{3, 17}, -0.5, 0.25}, {{1}, -2.0, 2.0}, {{0, 4}, -1.0, 1.0}, {{9, 303}, -0.75, 0.75}, {{33}, 0.5, 0.5}};
  }
  static std::vector<Params> bench() { return {{{3072, 1536}, -0.5, 0.5}}; }
  static std::string describe(const Params& p) { return str(p.shape, " to ", p.low, " … ", p.high); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape}}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::clamp(in[0], p.low, p.high)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> y(p.shape);
    for (int64_t i = 0; i < y.numel(); ++i) {
      y[i] = in[0][i];
      if (in[0][i] < S(p.low)) y[i] = S(p.low);
      if (in[0][i] > S(p.high)) y[i] = S(p.high);
    }
    return {y};
  }
};
LAMINA_OP_CASE(ClampCase);

}  // namespace
}  // namespace lamina::testing
