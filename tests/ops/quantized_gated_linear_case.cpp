#include "lamina/ops/linear/quantized_linear.h"
#include "ops/exact_blocks.h"
#include "ops/gated_oracle.h"
#include "ops/linear_oracle.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Gate;
using ops::QuantizedFormat;

struct QuantizedGatedLinearCase {
  static constexpr const char* name = "quantized_gated_linear";
  static constexpr bool kBackward = false;
  static std::vector<DType> dtypes() { return {DType::f32, DType::bf16, DType::f16}; }
  struct Params {
    Shape shape;
    int64_t n = 1;  ///< the weight has 2·n rows: gate and up
    QuantizedFormat format = QuantizedFormat::q8;
    Gate gate = Gate::swiglu;
    bool bias = false;
    ops::GateOptions options = {};
  };

  static std::vector<Params> sweep() {
    std::vector<Params> all;
    for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
      all.insert(all.end(),
                 {{{1, 288}, 768, format},
                  {{1, 3000}, 32, format, Gate::swiglu, true},
                  {{2, 7}, 3, format, Gate::swiglu, true},
                  {{3, 1, 40}, 48, format, Gate::swiglu, true},
                  {{0, 8}, 16, format},
                  {{2, 0}, 16, format, Gate::swiglu, true},
                  {{5, 8}, 0, format},
                  {{8, 64}, 32, format, Gate::swiglu, true, {.interleaved = true}},
                  {{8, 33}, 16, format, Gate::swiglu, true, {.alpha = 1.702, .limit = 1.25, .up_offset = 1.0}},
                  {{12, 32}, 16, format, Gate::swiglu, true},
                  {{32, 328}, 80, format, Gate::geglu, true},
                  {{17, 136}, 48, format},
                  {{70, 328}, 112, format, Gate::swiglu, true}});
      for (int i = 0; i <= static_cast<int>(Gate::liglu); ++i) {
        all.push_back({{3, 48}, 32, format, static_cast<Gate>(i), i % 2 == 0});
      }
    }
    return all;
  }
  /// Sizes for which cluster_tiles chooses each of its tiles, and splits the columns.
  static std::vector<Params> gpu_sweep() {
    std::vector<Params> all;
    for (const QuantizedFormat format : {QuantizedFormat::q8, QuantizedFormat::q4}) {
      all.insert(all.end(), {{{33, 40}, 8464, format},
                             {{66, 40}, 4272, format, Gate::geglu, true},
                             {{64, 2048}, 96, format},
                             {{256, 136}, 48, format, Gate::swiglu, true},
                             {{257, 136}, 48, format}});
    }
    return all;
  }
  static std::vector<Params> bench() {
    return {{{1, 768}, 2048}, {{1, 768}, 2048, QuantizedFormat::q4}, {{1, 4096}, 11008}, {{8, 2048}, 5632}};
  }
  static std::string describe(const Params& p) {
    const auto& o = p.options;
    return str(name_of(p.gate), " ", p.shape, " -> ", p.n, " ", ops::name_of(p.format), p.bias ? " bias" : "",
               o.interleaved ? " interleaved" : "", " alpha ", o.alpha, " limit ", o.limit, " offset ", o.up_offset);
  }
  static std::vector<Input> inputs(const Params& p) {
    const int64_t in = p.shape[-1];
    const bool bytes = p.format == QuantizedFormat::q8;
    return {{.shape = p.shape, .values = exact_values(p.shape.rows(), in, -127, 127, 127)},
            {.shape = {2 * p.n, in},
             .values = bytes ? exact_values(2 * p.n, in, -127, 127, -127) : exact_values(2 * p.n, in, -8, 7, -8)},
            p.bias ? Input{.shape = {2 * p.n}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::quantized_gated_linear(in[0], ops::quantize(in[1], p.format), in[2], p.gate, p.options)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    return {gated_oracle(linear_oracle(in[0], in[1], in[2], ops::Activation::none), p.gate, p.options)};
  }
};
LAMINA_OP_CASE(QuantizedGatedLinearCase);

}  // namespace
}  // namespace lamina::testing
