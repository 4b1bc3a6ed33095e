#include "lamina/ops/moe/grouped_linear.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct GroupedLinearCase {
  static constexpr const char* name = "grouped_linear";
  struct Params {
    std::vector<double> offsets;
    int64_t slots;
    int64_t in;
    int64_t out;
    bool bias = false;
    DType index = DType::i64;
    int64_t experts() const { return static_cast<int64_t>(offsets.size()) - 1; }
  };

  static std::vector<Params> sweep() {
    return {{{0, 3, 3, 8}, 8, 5, 7, true},
            {{0, 1}, 1, 1, 1},
            {{0, 0, 0}, 0, 4, 3, true},
            {{0, 17, 20, 20, 33}, 40, 33, 16, false, DType::i32},
            {{2, 5, 9}, 12, 6, 4, true},
            {{0, 2, 3}, 3, 0, 4, true},
            {{0, 2, 3}, 3, 4, 0},
            {{0, 2, 3}, 5, 0, 2},
            {{0, 300, 301}, 301, 9, 3, true},
            {{0, 2, 5}, 5, 3, 270},
            {{0, 9, 9, 138}, 140, 40, 24, true},
            {{3, 3, 170, 300}, 310, 72, 272, true}};
  }
  static std::vector<Params> bench() {
    std::vector<double> even;
    for (int e = 0; e <= 8; ++e) even.push_back(512.0 * e);
    return {{even, 4096, 512, 1024}};
  }
  static std::string describe(const Params& p) {
    return str(p.slots, " rows, ", p.experts(), " experts ", p.in, " -> ", p.out, p.bias ? " biased" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = {p.slots, p.in}},
            {.shape = {p.experts(), p.out, p.in}},
            integers({p.experts() + 1}, p.offsets, p.index),
            p.bias ? Input{.shape = {p.experts(), p.out}} : absent()};
  }
  static std::vector<Tensor> run(const Params&, const std::vector<Tensor>& in) {
    return {ops::grouped_linear(in[0], in[1], in[2], in[3])};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> y({p.slots, p.out});
    for (int64_t e = 0; e < p.experts(); ++e) {
      const auto begin = static_cast<int64_t>(p.offsets[static_cast<size_t>(e)]);
      const auto end = static_cast<int64_t>(p.offsets[static_cast<size_t>(e) + 1]);
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t o = 0; o < p.out; ++o) {
          S sum = p.bias ? in[3][e * p.out + o] : S(0);
          for (int64_t i = 0; i < p.in; ++i) sum += in[1][(e * p.out + o) * p.in + i] * in[0][r * p.in + i];
          y[r * p.out + o] = sum;
        }
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(GroupedLinearCase);

}  // namespace
}  // namespace lamina::testing
