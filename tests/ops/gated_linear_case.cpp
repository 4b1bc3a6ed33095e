#include "lamina/ops/linear/gated_linear.h"

#include "ops/gated_oracle.h"
#include "ops/linear_oracle.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Gate;

struct GatedLinearCase {
  static constexpr const char* name = "gated_linear";
  struct Params {
    Shape shape;
    int64_t n = 1;  ///< the weight has 2·n rows: gate and up
    Gate gate = Gate::swiglu;
    bool bias = false;
    ops::GateOptions options = {};
  };

  static std::vector<Params> sweep() {
    std::vector<Params> all{{{1, 288}, 96},
                            {{2, 7}, 3, Gate::swiglu, true},
                            {{3, 1, 40}, 33, Gate::swiglu, true},
                            {{1, 1}, 1},
                            {{0, 8}, 4},
                            {{2, 0}, 4, Gate::swiglu, true},
                            {{5, 8}, 0},
                            {{8, 64}, 24, Gate::swiglu, true, {.interleaved = true}},
                            {{5, 296}, 9, Gate::swiglu, false, {.interleaved = true}},
                            {{8, 16}, 5, Gate::swiglu, true, {.alpha = 1.702, .limit = 1.25, .up_offset = 1.0}},
                            {{12, 32}, 6, Gate::swiglu, true},
                            {{2, 1032}, 70, Gate::swiglu, true},
                            {{7, 328}, 33, Gate::geglu},
                            {{8, 2600}, 32, Gate::swiglu, true},
                            {{15, 72}, 40, Gate::swiglu, true},
                            {{32, 328}, 70, Gate::geglu},
                            {{64, 1032}, 40, Gate::swiglu, true},
                            {{130, 328}, 104}};
    for (int i = 0; i <= static_cast<int>(Gate::liglu); ++i) {
      all.push_back({{3, 48}, 17, static_cast<Gate>(i), i % 2 == 0});
    }
    return all;
  }
  static std::vector<Params> bench() { return {{{1, 768}, 2048}, {{1, 288}, 768}, {{8, 2048}, 5632}}; }
  static std::string describe(const Params& p) {
    const auto& o = p.options;
    return str(name_of(p.gate), " ", p.shape, " -> ", p.n, p.bias ? " bias" : "", o.interleaved ? " interleaved" : "",
               " alpha ", o.alpha, " limit ", o.limit, " offset ", o.up_offset);
  }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = p.shape}, {.shape = {2 * p.n, p.shape[-1]}}, p.bias ? Input{.shape = {2 * p.n}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::gated_linear(in[0], in[1], in[2], p.gate, p.options)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    return {gated_oracle(linear_oracle(in[0], in[1], in[2], ops::Activation::none), p.gate, p.options)};
  }
};
LAMINA_OP_CASE(GatedLinearCase);

}  // namespace
}  // namespace lamina::testing
