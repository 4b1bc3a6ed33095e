#include "lamina/ops/linear/feed_forward.h"

#include "ops/linear_oracle.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Activation;

struct FeedForwardCase {
  static constexpr const char* name = "feed_forward";
  struct Params {
    Shape shape;
    int64_t d_ff = 1;
    int64_t out = 1;
    bool bias = false;
    Activation activation = Activation::gelu_tanh;
    ops::HiddenActivations hidden = ops::HiddenActivations::kept;
  };

  static std::vector<Params> sweep() {
    std::vector<Params> all{
        {{300, 24}, 40, 16},    {{300, 24}, 40, 16, true}, {{2, 9, 16}, 64, 16},
        {{70, 7}, 33, 5, true}, {{20, 9}, 12, 7},          {{3, 8}, 16, 8, true},
        {{1, 1}, 1, 1},         {{0, 8}, 16, 8, true},     {{5, 0}, 8, 4, true},
        {{5, 8}, 0, 4, true},   {{5, 8}, 16, 0},           {{20, 16}, 24, 8, true, Activation::none}};
    for (const Activation kind : {Activation::relu, Activation::gelu, Activation::silu, Activation::relu2}) {
      all.push_back({{18, 16}, 24, 8, kind != Activation::gelu, kind});
      all.push_back({{18, 16}, 24, 8, kind == Activation::gelu, kind, ops::HiddenActivations::recomputed});
    }
    all.push_back({{20, 16}, 24, 8, true, Activation::none, ops::HiddenActivations::recomputed});
    return all;
  }
  static std::vector<Params> bench() {
    return {{{16384, 384}, 1536, 384}, {{3072, 384}, 1536, 384, true}, {{1, 768}, 3072, 768}};
  }
  static std::string describe(const Params& p) {
    return str(p.shape, " -> ", p.d_ff, " -> ", p.out, p.bias ? " bias" : "", " activation ",
               static_cast<int>(p.activation), p.hidden == ops::HiddenActivations::kept ? "" : " recomputed");
  }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = p.shape},
            {.shape = {p.d_ff, p.shape[-1]}},
            p.bias ? Input{.shape = {p.d_ff}} : absent(),
            {.shape = {p.out, p.d_ff}},
            p.bias ? Input{.shape = {p.out}} : absent()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::feed_forward(in[0], {in[1], in[2], in[3], in[4]}, p.activation, p.hidden)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    return {linear_oracle(linear_oracle(in[0], in[1], in[2], p.activation), in[3], in[4], Activation::none)};
  }
};
LAMINA_OP_CASE(FeedForwardCase);

}  // namespace
}  // namespace lamina::testing
