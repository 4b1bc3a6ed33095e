#include "lamina/ops/linear/linear.h"

#include "ops/linear_oracle.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Activation;

struct LinearCase {
  static constexpr const char* name = "linear";
  struct Params {
    Shape shape;
    int64_t out = 1;
    bool bias = false;
    Activation activation = Activation::none;
  };

  static std::vector<Params> sweep() {
    std::vector<Params> all{{{3, 17}, 5},
                            {{1, 1}, 1},
                            {{2, 3, 8}, 33, true},
                            {{0, 8}, 4, true},
                            {{3, 0}, 4, true, Activation::gelu},
                            {{5, 8}, 0},
                            {{4, 9}, 7, true, Activation::silu},
                            {{70, 40}, 65, true, Activation::relu},
                            {{200, 21}, 50, false, Activation::tanh},
                            {{9, 400}, 30, true},
                            {{70, 48}, 32, true},
                            {{900, 8}, 24, true},
                            {{300, 24}, 40, true, Activation::gelu_tanh}};
    for (const Activation kind :
         {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu, Activation::elu,
          Activation::selu, Activation::relu2, Activation::sigmoid, Activation::tanh}) {
      all.push_back({{6, 10}, 19, kind != Activation::elu, kind});
      all.push_back({{2, 32}, 12, kind != Activation::tanh, kind});
    }
    // The few-rows kernels: one or several steps along k, full or partial; zero, one or several full groups of outputs.
    all.insert(all.end(), {{{1, 1}, 3, true},
                           {{2, 7}, 288},
                           {{8, 7}, 3, true},
                           {{1, 288}, 288},
                           {{1, 288}, 1000, true},
                           {{3, 288}, 3, true, Activation::silu},
                           {{5, 8}, 1000, true},
                           {{8, 40}, 288, true, Activation::gelu_tanh},
                           {{3, 1, 296}, 33},
                           {{1, 4096}, 3},
                           {{2, 4096}, 1, true},
                           {{5, 4096}, 3, true, Activation::relu},
                           {{8, 4096}, 9},
                           {{1, 1500}, 300},
                           {{3, 1500}, 9, true},
                           {{1, 2600}, 300, true, Activation::gelu},
                           {{8, 2600}, 9}});
    // Slabs of weight rows: full and partial slabs, tiles of tokens and steps along k; 33 rows and more take other
    // tiles, 49 are too many. 2200 outputs need more than one wave of 16-row slabs.
    all.insert(all.end(), {{{2, 64}, 16},
                           {{7, 72}, 37, true},
                           {{9, 1032}, 65, true, Activation::relu},
                           {{16, 256}, 17},
                           {{17, 328}, 200, true, Activation::silu},
                           {{32, 2600}, 30, true},
                           {{33, 8}, 1, true},
                           {{48, 520}, 66, true, Activation::gelu_tanh},
                           {{49, 64}, 16, true},
                           {{64, 136}, 35},
                           {{3, 40}, 2200, true},
                           {{13, 264}, 2202, true, Activation::gelu},
                           {{31, 72}, 2200}});
    return all;
  }
  static std::vector<Params> bench() {
    return {{{16384, 384}, 1536},      {{16384, 1536}, 384},
            {{16384, 384}, 65},        {{64, 384}, 1536},
            {{3072, 384}, 384},        {{3072, 384}, 1152},
            {{3072, 384}, 1536},       {{1, 768}, 3072},
            {{3072, 384}, 1536, true}, {{3072, 384}, 1536, true, Activation::gelu},
            {{8, 2048}, 2048},         {{32, 5632}, 2048}};
  }
  static std::string describe(const Params& p) {
    return str(p.shape, " -> ", p.out, p.bias ? " bias" : "", " activation ", static_cast<int>(p.activation));
  }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = p.shape}, {.shape = {p.out, p.shape[-1]}}, p.bias ? Input{.shape = {p.out}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::linear(in[0], in[1], in[2], p.activation)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    return {linear_oracle(in[0], in[1], in[2], p.activation)};
  }
};
LAMINA_OP_CASE(LinearCase);

}  // namespace
}  // namespace lamina::testing
