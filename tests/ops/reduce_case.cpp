#include "lamina/ops/elementwise/reduce.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct ReduceParams {
  Shape shape;
  std::optional<int> axis = std::nullopt;  // none: reduce over all elements
};

template <class Self>
struct ReduceCase {
  using Params = ReduceParams;
  static std::vector<Params> bench() { return {{{3072, 1536}}, {{3072, 1536}, 0}, {{3072, 1536}, 1}}; }
  static std::string describe(const Params& p) { return str(p.shape, p.axis ? str(" along ", *p.axis) : " all"); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape, .low = -0.5}}; }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    int64_t outer = 1;
    int64_t inner = 1;
    int64_t count = p.axis ? p.shape[*p.axis] : p.shape.numel();
    Shape shape;
    for (int i = 0; p.axis && i < p.shape.rank(); ++i) {
      const int axis = p.shape.normalize(*p.axis);
      if (i == axis) continue;
      (i < axis ? outer : inner) *= p.shape[i];
      shape.push_back(p.shape[i]);
    }
    Array<S> y(shape);
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        S sum = 0;
        for (int64_t k = 0; k < count; ++k) sum += in[0][(o * count + k) * inner + i];
        y[o * inner + i] = Self::kAverage ? sum / S(count) : sum;
      }
    }
    return {y};
  }
};

struct SumCase : ReduceCase<SumCase> {
  static constexpr const char* name = "sum";
  static constexpr bool kAverage = false;
  static std::vector<Params> sweep() {
    return {{{3, 17}},     {{3, 17}, 0}, {{3, 17}, -1},    {{1}},           {{0, 4}},        {{0, 4}, 0},
            {{0, 4}, 1},   {{5, 0}, 1},  {{2, 300, 5}, 1}, {{2, 3, 70}, 2}, {{9000}},        {{2, 9001}, 1},
            {{700, 3}, 0}, {{7}, 0},     {{150, 100}},     {{700, 24}, 0},  {{1300, 260}, 0}};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {p.axis ? ops::sum(in[0], *p.axis) : ops::sum(in[0])};
  }
};
LAMINA_OP_CASE(SumCase);

struct MeanCase : ReduceCase<MeanCase> {
  static constexpr const char* name = "mean";
  static constexpr bool kAverage = true;
  static std::vector<Params> sweep() {
    return {{{3, 17}},        {{3, 17}, 0}, {{3, 17}, -1},  {{1}},        {{0, 4}, 1},
            {{2, 300, 5}, 1}, {{4100}},     {{2, 4500}, 1}, {{700, 8}, 0}};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {p.axis ? ops::mean(in[0], *p.axis) : ops::mean(in[0])};
  }
};
LAMINA_OP_CASE(MeanCase);

}  // namespace
}  // namespace lamina::testing
