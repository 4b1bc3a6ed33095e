#include "lamina/ops/linear/norm_linear.h"

#include "ops/gated_oracle.h"
#include "ops/linear_oracle.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Activation;
using ops::Gate;
using ops::RowNorm;

/// What both forms have in common: the stream and its norm.
struct NormedStream {
  Shape shape;
  int64_t out = 1;
  RowNorm::Kind kind = RowNorm::Kind::rms;
  bool residual = true;
  bool scale = true;       ///< and for a layer norm a bias
  bool bias = false;       ///< of the product
  double offset = 0.0;     ///< of an RMS norm's scale
  int64_t group_size = 0;  ///< of an RMS norm

  bool layer() const { return kind == RowNorm::Kind::layer; }
  std::string describe() const {
    return str(layer() ? "layer " : "rms ", shape, " -> ", out, residual ? " residual" : "", scale ? "" : " no scale",
               bias ? " bias" : "", offset != 0 ? " offset" : "", group_size != 0 ? " groups" : "");
  }
  std::vector<Input> inputs(int64_t weight_rows) const {
    const Input vector{.shape = {shape[-1]}};
    return {{.shape = shape},
            residual ? Input{.shape = shape} : absent(),
            scale ? vector : absent(),
            scale && layer() ? vector : absent(),
            {.shape = {weight_rows, shape[-1]}},
            bias ? Input{.shape = {weight_rows}} : absent()};
  }
  RowNorm norm(const std::vector<Tensor>& in) const {
    return {kind, in[2], in[3], {.eps = 1e-3, .group_size = group_size, .weight_offset = offset}};
  }
  std::vector<Tensor> outputs(const ops::NormLinear& result) const {
    return residual ? std::vector<Tensor>{result.h, result.y} : std::vector<Tensor>{result.y};
  }
  template <class S>
  Array<S> value(const Arrays<S>& in) const {
    Array<S> h(shape);
    for (int64_t i = 0; i < h.numel(); ++i) h[i] = residual ? in[0][i] + in[1][i] : in[0][i];
    return h;
  }
  template <class S>
  Array<S> normed(const Array<S>& h, const Arrays<S>& in) const {
    using std::sqrt;
    const int64_t width = shape[-1];
    const int64_t group = group_size == 0 ? width : group_size;
    Array<S> y(shape);
    for (int64_t start = 0; start < h.numel(); start += group) {
      S mean = 0;
      for (int64_t i = start; layer() && i < start + group; ++i) mean += h[i] / S(group);
      S squares = 0;
      for (int64_t i = start; i < start + group; ++i) squares += (h[i] - mean) * (h[i] - mean);
      const S deviation = sqrt(squares / S(group) + S(1e-3));
      for (int64_t i = start; i < start + group; ++i) {
        y[i] = (h[i] - mean) / deviation;
        if (scale) y[i] *= in[2][i % width] + S(offset);
        if (scale && layer()) y[i] += in[3][i % width];
      }
    }
    return y;
  }
  template <class S>
  Arrays<S> results(const Array<S>& h, const Array<S>& y) const {
    return residual ? Arrays<S>{h, y} : Arrays<S>{y};
  }
};

constexpr auto kRms = RowNorm::Kind::rms;
constexpr auto kLayer = RowNorm::Kind::layer;

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
            {{{8, 1032}, 5}},  // the first width that eight rows do not norm in one launch
            {{{3, 1536}, 5, kLayer}},
            {{{9, 64}, 12, kLayer}},
            {{{9, 24}, 12, kRms, true, false, true}},
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

struct NormGatedLinearCase {
  static constexpr const char* name = "norm_gated_linear";
  struct Params {
    NormedStream stream;
    Gate gate = Gate::swiglu;
    ops::GateOptions options = {};
  };
  /// Narrow types round behind the norm, the product and the gate, more often than the tolerance has room for; there it
  /// is compared with the three operators (NormLinear.IsNormThenProduct, CudaFewRows.NormsWithinProducts).
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }

  static std::vector<Params> sweep() {
    return {{{{1, 288}, 96}},
            {{{2, 7}, 3, kRms, true, true, true}, Gate::geglu},
            {{{3, 1, 40}, 33, kLayer, false, true, true}},
            {{{5, 264}, 9, kRms, false}, Gate::reglu, {.interleaved = true}},
            {{{8, 520}, 12, kLayer, true, true, true}, Gate::glu, {.interleaved = true}},
            {{{8, 16}, 5, kRms, true, true, true}, Gate::swiglu, {.alpha = 1.702, .limit = 1.25, .up_offset = 1.0}},
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

}  // namespace
}  // namespace lamina::testing
