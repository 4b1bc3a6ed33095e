#include "lamina/ops/activation/gated_activation.h"

#include "ops/gated_oracle.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Gate;

struct GatedActivationCase {
  static constexpr const char* name = "gated_activation";
  struct Params {
    Shape shape;
    Gate gate;
    ops::GateOptions options = {};
  };

  static std::vector<Params> sweep() {
    std::vector<Params> all;
    const ops::GateOptions cut{.interleaved = true, .alpha = 1.702, .limit = 1.25, .up_offset = 1.0};
    for (int i = 0; i <= static_cast<int>(Gate::liglu); ++i) {
      const auto gate = static_cast<Gate>(i);
      all.insert(all.end(), {{{3, 34}, gate}, {{2, 3, 66}, gate, {.interleaved = true}}, {{5, 38}, gate, cut}});
    }
    const ops::GateOptions halves{.alpha = 0.5, .limit = 0.75};
    all.insert(all.end(), {{{1, 2}, Gate::swiglu},
                           {{2}, Gate::swiglu, {.interleaved = true}},
                           {{0, 8}, Gate::swiglu},
                           {{4, 0}, Gate::swiglu},
                           {{130, 6}, Gate::geglu, {.interleaved = true}},
                           {{7, 6000}, Gate::liglu},
                           {{4, 64}, Gate::swiglu, halves}});
    return all;
  }
  static std::vector<Params> bench() { return {{{3072, 2048}, Gate::swiglu}, {{3072, 2048}, Gate::geglu}}; }
  static std::string describe(const Params& p) {
    const auto& o = p.options;
    return str(name_of(p.gate), " ", p.shape, o.interleaved ? " interleaved" : "", " alpha ", o.alpha, " limit ",
               o.limit, " offset ", o.up_offset);
  }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape, .low = -3.0, .high = 3.0}}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::gated_activation(in[0], p.gate, p.options)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    return {gated_oracle(in[0], p.gate, p.options)};
  }
};
LAMINA_OP_CASE(GatedActivationCase);

}  // namespace
}  // namespace lamina::testing
