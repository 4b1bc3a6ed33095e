#include "lamina/ops/linear/matmul.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct MatmulCase {
  static constexpr const char* name = "matmul";
  struct Params {
    Shape batch;
    Shape shared;  // leading dimensions of b
    int64_t m, n, k;
    bool ta = false;
    bool tb = false;
    double alpha = 1.0;
  };

  static std::vector<Params> sweep() {
    std::vector<Params> all{{{}, {}, 3, 5, 7},
                            {{}, {}, 1, 1, 1},
                            {{2}, {2}, 0, 5, 7},
                            {{2}, {2}, 4, 5, 0},
                            {{0}, {0}, 4, 5, 3},
                            {{2, 3}, {2, 3}, 5, 6, 4, false, true, 0.25},
                            {{2, 3}, {2, 1}, 5, 6, 4},
                            {{2, 3}, {1, 3}, 5, 6, 4, true, false},
                            {{2, 3}, {3}, 5, 6, 4, false, true},
                            {{3}, {}, 6, 17, 9, true, true, -2.0},
                            {{}, {}, 70, 65, 9},
                            {{}, {}, 140, 20, 12, true, false}};
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) all.push_back({{2}, {2}, 9, 18, 11, ta, tb, 1.5});
    }
    return all;
  }
  static std::vector<Params> bench() {
    return {
        {{12, 6}, {12, 6}, 256, 256, 64, false, true}, {{12, 6}, {12, 6}, 256, 64, 256}, {{}, {}, 2048, 2048, 2048}};
  }
  static std::string describe(const Params& p) {
    return str(p.batch, " of ", p.m, "x", p.k, "x", p.n, " b in ", p.shared, p.ta ? " a transposed" : "",
               p.tb ? " b transposed" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    Shape a = p.batch;
    a.push_back(p.ta ? p.k : p.m);
    a.push_back(p.ta ? p.m : p.k);
    Shape b = p.shared;
    b.push_back(p.tb ? p.n : p.k);
    b.push_back(p.tb ? p.k : p.n);
    return {{.shape = a}, {.shape = b}};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::matmul(in[0], in[1], {.transpose_a = p.ta, .transpose_b = p.tb, .alpha = p.alpha})};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Shape shape = p.batch;
    const int64_t batches = shape.numel();
    shape.push_back(p.m);
    shape.push_back(p.n);
    Array<S> c(shape);
    for (int64_t batch = 0; batch < batches; ++batch) {
      const int64_t outer = p.batch.rank() == 2 ? batch / p.batch[1] : 0;
      const int64_t inner = p.batch.rank() == 2 ? batch % p.batch[1] : batch;
      int64_t matrix = 0;
      if (p.shared.rank() == 2) {
        matrix = (p.shared[0] == 1 ? 0 : outer) * p.shared[1] + (p.shared[1] == 1 ? 0 : inner);
      } else if (p.shared.rank() == 1) {
        matrix = p.shared[0] == 1 ? 0 : inner;
      }
      for (int64_t i = 0; i < p.m; ++i) {
        for (int64_t j = 0; j < p.n; ++j) {
          S sum = 0;
          for (int64_t l = 0; l < p.k; ++l) {
            sum += in[0][batch * p.m * p.k + (p.ta ? l * p.m + i : i * p.k + l)] *
                   in[1][matrix * p.k * p.n + (p.tb ? j * p.k + l : l * p.n + j)];
          }
          c[(batch * p.m + i) * p.n + j] = S(p.alpha) * sum;
        }
      }
    }
    return {c};
  }
};
LAMINA_OP_CASE(MatmulCase);

}  // namespace
}  // namespace lamina::testing
