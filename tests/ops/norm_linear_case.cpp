#include "ops/exact_blocks.h"
#include "ops/gated_oracle.h"
#include "ops/linear_oracle.h"
#include "ops/normed_stream.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Activation;
using ops::Gate;

struct NormLinearCase {
  static constexpr const char* name = "norm_linear";
  struct Params {
    NormedStream stream;
    Activation activation = Activation::none;
  };

  static std::vector<Params> sweep() {
    return {{{{1, 288}, 96}},
            {{{1, 288}, 96, kLayer, false, true, true}, Activation::gelu},
            {{{2, 7}, 3, kRms, true, true, true}},
            {{{2, 1, 40}, 33, kLayer}, Activation::relu},
            {{{5, 264}, 17, kRms, true, true, true}, Activation::silu},
            {{{5, 264}, 9, kLayer, false, false}},
            {{{8, 520}, 24, kRms, false, true, false, 1.0}},
            {{{8, 520}, 24, kLayer, true, true, true}},
            {{{8, 1032}, 5}},  // the smallest width at which eight rows need a separate norm launch
            {{{3, 1536}, 5, kLayer}},
            {{{1, 2048}, 300, kRms, true, true, true, 1.0}, Activation::silu},
            {{{5, 2048}, 9, kLayer, true, true, true}},
            {{{1, 2056}, 9}},  // the smallest width at which f32 needs a separate norm launch
            {{{9, 64}, 12, kLayer}},
            {{{9, 24}, 12, kRms, true, false, true}},
            {{{17, 328}, 40, kRms, true, true, true, 1.0}},
            {{{32, 136}, 24, kRms, false}, Activation::silu},
            {{{4, 64}, 12, kRms, true, true, false, 0.0, 16}},
            {{{1, 1}, 1}},
            {{{0, 8}, 4}},
            {{{5, 8}, 0}},
            {{{1, 17}, 8, kLayer, true, false}}};
  }
  static std::vector<Params> bench() { return {{{{1, 768}, 2304}}, {{{1, 288}, 864}}, {{{8, 768}, 2304}}}; }
  static std::string describe(const Params& p) { return str(p.stream.describe(), " ", name_of(p.activation)); }
  static std::vector<Input> inputs(const Params& p) { return p.stream.inputs(p.stream.out); }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return p.stream.outputs(ops::norm_linear(in[0], in[1], p.stream.norm(in), in[4], in[5], p.activation));
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const Array<S> h = p.stream.value(in);
    return p.stream.results(h, linear_oracle(p.stream.normed(h, in), in[4], in[5], p.activation));
  }
};
LAMINA_OP_CASE(NormLinearCase);

/// Residual in parts. Not for 16-bit types: the sum of the parts adds a rounding that the tolerance does not allow.
struct NormLinearOfParts : NormLinearCase {
  static constexpr const char* form = "of_parts";
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }
  static std::vector<Params> sweep() {
    return {{{{1, 288}, 24, kRms, true, true, false, 0.0, 0, 12}},
            {{{1, 1, 40}, 24, kLayer, true, true, true, 0.0, 0, 3}},
            {{{1, 16}, 8, kRms, true, true, false, 0.0, 0, 1}},
            {{{3, 24}, 8, kRms, true, true, false, 0.0, 0, 2}}};
  }
  static std::vector<Params> bench() { return {}; }
};
LAMINA_OP_CASE(NormLinearOfParts);

struct NormGatedLinearCase {
  static constexpr const char* name = "norm_gated_linear";
  struct Params {
    NormedStream stream;
    Gate gate = Gate::swiglu;
    ops::GateOptions options = {};
  };
  /// 16-bit types round after the norm, the product and the gate, which exceeds the tolerance. For them other tests
  /// compare with the three operators (NormLinear.IsNormThenProduct, CudaFewRows.NormsWithinProducts).
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }

  static std::vector<Params> sweep() {
    return {{{{1, 288}, 96}},
            {{{2, 7}, 3, kRms, true, true, true}, Gate::geglu},
            {{{3, 1, 40}, 33, kLayer, false, true, true}},
            {{{5, 264}, 9, kRms, false}, Gate::reglu, {.interleaved = true}},
            {{{8, 520}, 12, kLayer, true, true, true}, Gate::glu, {.interleaved = true}},
            {{{8, 16}, 5, kRms, true, true, true}, Gate::swiglu, {.alpha = 1.702, .limit = 1.25, .up_offset = 1.0}},
            {{{1, 768}, 9, kRms, true, true, false, 0.0, 0, 16}},
            {{{9, 32}, 6}},
            {{{4, 64}, 12, kRms, true, true, false, 0.0, 16}},
            {{{1, 1}, 1}},
            {{{0, 8}, 4}}};
  }
  static std::vector<Params> bench() { return {{{{1, 768}, 2048}}, {{{1, 288}, 768}}, {{{8, 768}, 2048}}}; }
  static std::string describe(const Params& p) {
    return str(p.stream.describe(), " ", name_of(p.gate), p.options.interleaved ? " interleaved" : "", " alpha ",
               p.options.alpha, " limit ", p.options.limit, " offset ", p.options.up_offset);
  }
  static std::vector<Input> inputs(const Params& p) { return p.stream.inputs(2 * p.stream.out); }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return p.stream.outputs(ops::norm_gated_linear(in[0], in[1], p.stream.norm(in), in[4], in[5], p.gate, p.options));
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const Array<S> h = p.stream.value(in);
    const Array<S> joined = linear_oracle(p.stream.normed(h, in), in[4], in[5], Activation::none);
    return p.stream.results(h, gated_oracle(joined, p.gate, p.options));
  }
};
LAMINA_OP_CASE(NormGatedLinearCase);

/// Quantized weights. The residual's part n is 2ⁿ · x and the norm's weight a power of two per block, so the normalised
/// rows are integers times one number per block, which 8 bits represent exactly.
struct QuantizedNormCase {
  static constexpr const char* name = "norm_linear";
  static constexpr const char* form = "of_8_and_4_bits";
  static constexpr bool kBackward = false;
  struct Params {
    NormedStream stream;
    ops::QuantizedFormat format = ops::QuantizedFormat::q8;
    bool gated = false;
    Activation activation = Activation::none;
  };
  static std::vector<DType> dtypes() { return {DType::f32}; }

  static std::vector<Params> sweep() {
    std::vector<Params> all;
    for (const ops::QuantizedFormat format : {ops::QuantizedFormat::q8, ops::QuantizedFormat::q4}) {
      all.insert(all.end(), {{{{1, 288}, 96}, format},
                             {{{1, 768}, 33, kRms, true, true, true}, format, false, Activation::silu},
                             {{{1, 2048}, 2560, kRms, true, true, false, 0.0, 0, 4}, format},
                             {{{1, 2048}, 176, kRms, true, true, true, 0.0, 0, 5}, format, true},
                             {{{2, 1, 40}, 16, kRms, false}, format, true},
                             {{{5, 264}, 48, kRms, true, true, true}, format, true},
                             {{{8, 520}, 24, kRms, true, false}, format},
                             {{{3, 36}, 40, kRms, true, true, false, 0.0, 0, 2}, format},
                             {{{9, 64}, 32}, format, true},
                             {{{0, 8}, 4}, format}});
    }
    return all;
  }
  static std::vector<Params> bench() { return {}; }
  static std::string describe(const Params& p) {
    return str(p.stream.describe(), " ", ops::name_of(p.format), p.gated ? " gated" : "", " ", name_of(p.activation));
  }
  static std::vector<Input> inputs(const Params& p) {
    const int64_t rows = p.stream.shape.rows();
    const int64_t in = p.stream.shape[-1];
    const int64_t out = p.gated ? 2 * p.stream.out : p.stream.out;
    std::vector<Input> all = p.stream.inputs(out);
    all[0].values = exact_values(rows, in, -127, 127, 127);
    for (int64_t n = 0; p.stream.residual && n < std::max<int64_t>(p.stream.parts, 1); ++n) {
      for (const double x : all[0].values) all[1].values.push_back(std::ldexp(x, static_cast<int>(n)));
    }
    for (int64_t i = 0; p.stream.scale && i < in; ++i) {
      all[2].values.push_back(std::ldexp(1.0, static_cast<int>(i / 32 % 3) - 1));
    }
    all[4].values = p.format == ops::QuantizedFormat::q8 ? exact_values(out, in, -127, 127, -127)
                                                         : exact_values(out, in, -8, 7, -8);
    return all;
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const ops::QuantizedWeight weight = ops::quantize(in[4], p.format);
    const ops::RowNorm norm = p.stream.norm(in);
    return p.stream.outputs(p.gated ? ops::norm_gated_linear(in[0], in[1], norm, weight, in[5], Gate::swiglu)
                                    : ops::norm_linear(in[0], in[1], norm, weight, in[5], p.activation));
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const Array<S> h = p.stream.value(in);
    const Array<S> y = linear_oracle(p.stream.normed(h, in), in[4], in[5], p.gated ? Activation::none : p.activation);
    return p.stream.results(h, p.gated ? gated_oracle(y, Gate::swiglu, {}) : y);
  }
};
LAMINA_OP_CASE(QuantizedNormCase);

}  // namespace
}  // namespace lamina::testing
