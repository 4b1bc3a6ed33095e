#include "lamina/ops/norm/rms_norm.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct RmsNormCase {
  static constexpr const char* name = "rms_norm";
  struct Params {
    Shape shape;
    int64_t group = 0;
    bool weight = true;
    double eps = 1e-5;
    double offset = 0.0;
  };

  static std::vector<Params> sweep() {
    return {{{3, 17}},           {{1, 1}},          {{2, 5, 64}, 16}, {{4, 24}, 8, true, 1e-2, 1.0},
            {{2, 33}, 0, false}, {{0, 8}, 0, true}, {{3, 1000}},      {{130, 7}},
            {{70, 259}}};
  }
  static std::vector<Params> bench() { return {{{16384, 384}}, {{8192, 4096}}}; }
  static std::string describe(const Params& p) {
    return str(p.shape, p.group != 0 ? str(" group ", p.group) : "", p.weight ? "" : " no weight",
               p.offset != 0 ? " offset 1" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = p.shape}, p.weight ? Input{.shape = {p.shape[-1]}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::rms_norm(in[0], in[1], {.eps = p.eps, .group_size = p.group, .weight_offset = p.offset})};
  }

  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::sqrt;
    const Array<S>& x = in[0];
    const int64_t width = p.shape[-1];
    const int64_t group = p.group == 0 ? width : p.group;
    Array<S> y(p.shape);
    for (int64_t start = 0; start < x.numel(); start += group) {
      S sum = 0;
      for (int64_t i = start; i < start + group; ++i) sum += x[i] * x[i];
      const S rms = sqrt(sum / S(group) + S(p.eps));
      for (int64_t i = start; i < start + group; ++i) {
        y[i] = x[i] / rms;
        if (p.weight) y[i] *= in[1][i % width] + S(p.offset);
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(RmsNormCase);

struct AddRmsNormCase {
  static constexpr const char* name = "add_rms_norm";
  using Params = RmsNormCase::Params;

  static std::vector<Params> sweep() {
    return {{{3, 17}}, {{1, 1}}, {{2, 5, 64}, 16}, {{2, 33}, 0, false}, {{0, 8}}, {{70, 259}}, {{9, 384}}, {{3, 1536}}};
  }
  static std::vector<Params> bench() { return {{{16384, 384}}, {{8192, 4096}}}; }
  static std::string describe(const Params& p) { return RmsNormCase::describe(p); }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = p.shape}, {.shape = p.shape}, p.weight ? Input{.shape = {p.shape[-1]}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    const auto out = ops::add_rms_norm(in[0], in[1], in[2], {.eps = p.eps, .group_size = p.group});
    return {out.h, out.y};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> h(p.shape);
    for (int64_t i = 0; i < h.numel(); ++i) h[i] = in[0][i] + in[1][i];
    return {h, RmsNormCase::oracle<S>(p, {h, in[2]})[0]};
  }
};
LAMINA_OP_CASE(AddRmsNormCase);

}  // namespace
}  // namespace lamina::testing
