#include "lamina/ops/dropout/dropout.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct DropoutCase {
  static constexpr const char* name = "dropout";
  struct Params {
    Shape shape;
    double p;
    RandomKey key = {1, 2};
  };

  static std::vector<Params> sweep() {
    return {{{3, 17}, 0.5}, {{1}, 0.25},    {{0, 4}, 0.5},     {{5, 205}, 0.1, {~uint64_t{0}, ~uint64_t{0} - 1}},
            {{3, 19}, 0.0}, {{3, 19}, 1.0}, {{2, 33000}, 0.75}};
  }
  static std::vector<Params> bench() { return {{{3072, 1536}, 0.1}}; }
  static std::string describe(const Params& p) { return str(p.shape, " p ", p.p); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape}}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::dropout(in[0], p.p, p.key)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> y(p.shape);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const bool kept = p.p < 1 && philox_word(p.key, static_cast<uint64_t>(i)) >= dropout_threshold(p.p);
      y[i] = kept ? in[0][i] / S(1 - p.p) : S(0);
    }
    return {y};
  }
};
LAMINA_OP_CASE(DropoutCase);

}  // namespace
}  // namespace lamina::testing
