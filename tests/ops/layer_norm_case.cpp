#include "lamina/ops/norm/layer_norm.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct LayerNormCase {
  static constexpr const char* name = "layer_norm";
  struct Params {
    Shape shape;
    bool weight = true;
    bool bias = true;
    double eps = 1e-5;
    double low = -1.0;  // any value other than -1 shifts the mean away from zero
  };

  static std::vector<Params> sweep() {
    return {{{3, 17}},
            {{1, 1}},
            {{2, 1}, true, true, 1e-2},
            {{2, 5, 64}},
            {{4, 24}, true, false},
            {{4, 24}, false, true},
            {{2, 33}, false, false, 1e-3},
            {{0, 8}},
            {{3, 1000}},
            {{130, 7}},
            {{71, 259}},
            {{140, 384}},
            {{140, 640}},
            {{140, 1000}},
            {{6, 77}, true, true, 1e-5, 0.5}};
  }
  static std::vector<Params> bench() { return {{{16384, 384}}, {{8192, 4096}}}; }
  static std::string describe(const Params& p) {
    return str(p.shape, p.weight ? "" : " no weight", p.bias ? "" : " no bias", " from ", p.low);
  }
  static std::vector<Input> vectors(const Params& p) {
    const Input vector{.shape = {p.shape[-1]}};
    return {p.weight ? vector : absent(), p.bias ? vector : absent()};
  }
  static std::vector<Input> inputs(const Params& p) {
    const auto rest = vectors(p);
    return {{.shape = p.shape, .low = p.low}, rest[0], rest[1]};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::layer_norm(in[0], in[1], in[2], p.eps)};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::sqrt;
    const Array<S>& x = in[0];
    const int64_t width = p.shape[-1];
    Array<S> y(p.shape);
    for (int64_t start = 0; start < x.numel(); start += width) {
      S sum = 0;
      for (int64_t i = start; i < start + width; ++i) sum += x[i];
      const S mean = sum / S(width);
      S squares = 0;
      for (int64_t i = start; i < start + width; ++i) squares += (x[i] - mean) * (x[i] - mean);
      const S deviation = sqrt(squares / S(width) + S(p.eps));
      for (int64_t i = start; i < start + width; ++i) {
        y[i] = (x[i] - mean) / deviation;
        if (p.weight) y[i] *= in[1][i % width];
        if (p.bias) y[i] += in[2][i % width];
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(LayerNormCase);

struct AddLayerNormCase {
  static constexpr const char* name = "add_layer_norm";
  using Params = LayerNormCase::Params;

  static std::vector<Params> sweep() {
    return {{{3, 17}},  {{1, 1}},   {{2, 5, 64}, true, false}, {{2, 33}, false, false}, {{0, 8}}, {{70, 259}},
            {{9, 384}}, {{3, 1536}}};
  }
  static std::vector<Params> bench() { return {{{16384, 384}}, {{8192, 4096}}}; }
  static std::string describe(const Params& p) { return LayerNormCase::describe(p); }
  static std::vector<Input> inputs(const Params& p) {
    const auto rest = LayerNormCase::vectors(p);
    return {{.shape = p.shape}, {.shape = p.shape}, rest[0], rest[1]};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const auto out = ops::add_layer_norm(in[0], in[1], in[2], in[3], p.eps);
    return {out.h, out.y};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> h(p.shape);
    for (int64_t i = 0; i < h.numel(); ++i) h[i] = in[0][i] + in[1][i];
    return {h, LayerNormCase::oracle<S>(p, {h, in[2], in[3]})[0]};
  }
};
LAMINA_OP_CASE(AddLayerNormCase);

}  // namespace
}  // namespace lamina::testing
