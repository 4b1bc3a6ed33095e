#include "lamina/ops/elementwise/split.h"

#include "lamina/base/error.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct SplitCase {
  static constexpr const char* name = "split";
  struct Params {
    Shape shape;
    std::vector<int64_t> extents;
    int axis;
  };
  static std::vector<Params> sweep() {
    return {{{5, 3}, {2, 3}, 0},    {{3, 15}, {5, 1, 9}, 1},    {{2, 4, 4}, {3, 1}, -2}, {{7}, {7}, 0},
            {{4, 3}, {0, 4, 0}, 0}, {{3, 517}, {300, 217}, -1}, {{0, 6}, {2, 4}, -1},    {{1, 2, 9}, {4, 4, 1}, 2}};
  }
  static std::vector<Params> bench() { return {{{3072, 1152}, {384, 384, 384}, -1}}; }
  static std::string describe(const Params& p) {
    std::string text = str(p.shape, " along ", p.axis, " into");
    for (const int64_t extent : p.extents) text += str(" ", extent);
    return text;
  }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape}}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return ops::split(in[0], p.extents, p.axis);
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const int axis = p.shape.normalize(p.axis);
    int64_t outer = 1;
    int64_t inner = 1;
    for (int i = 0; i < p.shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : p.shape[i];
    Arrays<S> pieces;
    int64_t first = 0;
    for (const int64_t extent : p.extents) {
      Shape shape = p.shape;
      shape[axis] = extent;
      Array<S> piece(shape);
      int64_t at = 0;
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t i = 0; i < extent * inner; ++i) piece[at++] = in[0][(o * p.shape[axis] + first) * inner + i];
      }
      pieces.push_back(piece);
      first += extent;
    }
    return pieces;
  }
};
LAMINA_OP_CASE(SplitCase);

}  // namespace
}  // namespace lamina::testing
