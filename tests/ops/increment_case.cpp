#include "lamina/ops/elementwise/increment.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct CountOnCase {
  static constexpr const char* name = "increment_";
  static constexpr bool kBackward = false;
  static std::vector<DType> dtypes() { return {DType::f32}; }  // runs once; counters are i64
  struct Params {
    int64_t count;
  };
  static std::vector<Params> sweep() { return {{0}, {1}, {7}, {1000}}; }
  static std::vector<Params> bench() { return {}; }
  static std::string describe(const Params& p) { return std::to_string(p.count); }
  static std::vector<Input> inputs(const Params& p) {
    std::vector<double> values;
    for (int64_t i = 0; i < p.count; ++i) values.push_back(static_cast<double>(5 * i - 3));
    return {integers({p.count}, values)};
  }
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    const Tensor counters = in[0].clone();
    ops::increment_(counters);
    return {counters};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> out({p.count});
    for (int64_t i = 0; i < p.count; ++i) out[i] = in[0][i] + 1;
    return {out};
  }
};
LAMINA_OP_CASE(CountOnCase);

}  // namespace
}  // namespace lamina::testing
