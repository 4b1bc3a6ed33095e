#include "lamina/ops/elementwise/elementwise.h"

#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/soft_cap.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

/// Index into an operand of `shape` that broadcasts to flat index `at` of `out`.
int64_t source_position(const Shape& shape, const Shape& out, int64_t at) {
  int64_t position = 0;
  int64_t stride = 1;
  for (int axis = 1; axis <= shape.rank(); ++axis) {
    position += (shape[-axis] == 1 ? 0 : at % out[-axis]) * stride;
    stride *= shape[-axis];
    at /= out[-axis];
  }
  return position;
}

struct PairParams {
  Shape a, b, out;
  double alpha = 1.0;
};

std::vector<PairParams> pair_sweep() {
  return {{{3, 17}, {3, 17}, {3, 17}},
          {{1}, {1}, {1}},
          {{0, 4}, {4}, {0, 4}},
          {{5, 33}, {33}, {5, 33}},
          {{33}, {2, 5, 33}, {2, 5, 33}},
          {{4, 19}, {1}, {4, 19}},
          {{1}, {2, 3}, {2, 3}},
          {{4, 19}, {4, 1}, {4, 19}},
          {{3, 1, 5}, {1, 4, 1}, {3, 4, 5}},
          {{2, 1, 3, 1}, {7, 1, 21}, {2, 7, 3, 21}},
          {{1, 65560}, {1, 65560}, {1, 65560}},
          {{300, 40}, {40}, {300, 40}}};
}

template <class Self>
struct PairCase {
  using Params = PairParams;
  static std::vector<Params> sweep() { return pair_sweep(); }
  static std::vector<Params> bench() { return {{{3072, 1536}, {3072, 1536}, {3072, 1536}}}; }
  static std::string describe(const Params& p) { return str(p.a, " with ", p.b); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.a}, {.shape = p.b}}; }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> out(p.out);
    for (int64_t i = 0; i < out.numel(); ++i) {
      out[i] = Self::template of<S>(in[0][source_position(p.a, p.out, i)], in[1][source_position(p.b, p.out, i)]);
    }
    return {out};
  }
};

struct AddCase : PairCase<AddCase> {
  static constexpr const char* name = "add";
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    return {ops::add(in[0], in[1])};
  }
  template <class S>
  static S of(const S& a, const S& b) {
    return a + b;
  }
};
LAMINA_OP_CASE(AddCase);

struct SubCase : PairCase<SubCase> {
  static constexpr const char* name = "sub";
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    return {ops::sub(in[0], in[1])};
  }
  template <class S>
  static S of(const S& a, const S& b) {
    return a - b;
  }
};
LAMINA_OP_CASE(SubCase);

struct MulCase : PairCase<MulCase> {
  static constexpr const char* name = "mul";
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    return {ops::mul(in[0], in[1])};
  }
  template <class S>
  static S of(const S& a, const S& b) {
    return a * b;
  }
};
LAMINA_OP_CASE(MulCase);

struct AddScaledCase : PairCase<AddScaledCase> {
  static constexpr const char* name = "add_scaled";
  static std::vector<Tensor> run(const Params& /*p*/, const std::vector<Tensor>& in) {
    return {ops::add_scaled(in[0], in[1], -1.75)};
  }
  template <class S>
  static S of(const S& a, const S& b) {
    return a + S(-1.75) * b;
  }
};
LAMINA_OP_CASE(AddScaledCase);

struct UnaryParams {
  Shape shape;
  double number;
};

struct ScaleCase {
  static constexpr const char* name = "scale";
  using Params = UnaryParams;
  static std::vector<Params> sweep() {
    return {{{3, 17}, 0.3}, {{1}, -2.0}, {{0, 4}, 2.0}, {{5, 41}, 0.0}, {{2, 33000}, 1.5}};
  }
  static std::vector<Params> bench() { return {{{3072, 1536}, 0.5}}; }
  static std::string describe(const Params& p) { return str(p.shape, " by ", p.number); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape}}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::scale(in[0], p.number)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> y(p.shape);
    for (int64_t i = 0; i < y.numel(); ++i) y[i] = S(p.number) * in[0][i];
    return {y};
  }
};
LAMINA_OP_CASE(ScaleCase);

struct SoftCapCase {
  static constexpr const char* name = "soft_cap";
  using Params = UnaryParams;
  static std::vector<Params> sweep() {
    return {{{3, 17}, 3.0}, {{1}, 5.0}, {{0, 4}, 30.0}, {{5, 41}, 0.5}, {{9, 303}, 2.0}};
  }
  static std::vector<Params> bench() { return {{{3072, 1536}, 30.0}}; }
  static std::string describe(const Params& p) { return str(p.shape, " cap ", p.number); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape, .low = -4.0, .high = 4.0}}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::soft_cap(in[0], p.number)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::tanh;
    Array<S> y(p.shape);
    for (int64_t i = 0; i < y.numel(); ++i) y[i] = S(p.number) * tanh(in[0][i] / S(p.number));
    return {y};
  }
};
LAMINA_OP_CASE(SoftCapCase);

struct ConcatCase {
  static constexpr const char* name = "concat";
  struct Params {
    std::vector<Shape> shapes;
    int axis;
  };
  static std::vector<Params> sweep() {
    return {{{{3, 5}, {2, 5}}, 0},         {{{3, 5}, {3, 1}, {3, 9}}, 1}, {{{2, 3, 4}, {2, 1, 4}}, -2}, {{{7}}, 0},
            {{{0, 3}, {4, 3}, {0, 3}}, 0}, {{{3, 300}, {3, 217}}, -1}};
  }
  static std::vector<Params> bench() { return {{{{3072, 768}, {3072, 768}}, -1}}; }
  static std::string describe(const Params& p) {
    std::string text;
    for (const Shape& shape : p.shapes) text += str(shape, " ");
    return text + str("along ", p.axis);
  }
  static std::vector<Input> inputs(const Params& p) {
    std::vector<Input> all;
    for (const Shape& shape : p.shapes) all.push_back({.shape = shape});
    return all;
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) { return {ops::concat(in, p.axis)}; }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const int axis = p.shapes[0].normalize(p.axis);
    Shape shape = p.shapes[0];
    int64_t outer = 1;
    int64_t inner = 1;
    for (int i = 0; i < shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
    shape[axis] = 0;
    for (const Shape& part : p.shapes) shape[axis] += part[axis];
    Array<S> out(shape);
    int64_t at = 0;
    for (int64_t o = 0; o < outer; ++o) {
      for (const Array<S>& part : in) {
        const int64_t run = part.dim(axis) * inner;
        for (int64_t i = 0; i < run; ++i) out[at++] = part[o * run + i];
      }
    }
    return {out};
  }
};
LAMINA_OP_CASE(ConcatCase);

}  // namespace
}  // namespace lamina::testing
