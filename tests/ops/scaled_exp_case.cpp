#include "lamina/ops/elementwise/scaled_exp.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct ScaledExpCase {
  static constexpr const char* name = "scaled_exp";
  struct Params {
    Shape shape;
    double factor;
  };
  static std::vector<Params> sweep() {
    return {{{3, 17}, -1.0}, {{1}, 1.0}, {{0, 4}, 2.0}, {{5, 41}, 0.25}, {{9, 303}, -3.0}};
  }
  static std::vector<Params> bench() { return {}; }  // used for small parameters only
  static std::string describe(const Params& p) { return str(p.shape, " factor ", p.factor); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape, .low = -4.0, .high = 4.0}}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::scaled_exp(in[0], p.factor)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    Array<S> y(p.shape);
    for (int64_t i = 0; i < y.numel(); ++i) y[i] = S(p.factor) * exp(in[0][i]);
    return {y};
  }
};
LAMINA_OP_CASE(ScaledExpCase);

}  // namespace
}  // namespace lamina::testing
