#include "lamina/ops/activation/activation.h"

#include "ops/activation_oracle.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

using ops::Activation;

struct ActivationCase {
  static constexpr const char* name = "activation";
  struct Params {
    Shape shape;
    Activation function;
    double range = 3.0;
  };

  static std::vector<Params> sweep() {
    std::vector<Params> all;
    for (int i = 1; i <= static_cast<int>(Activation::tanh); ++i) {
      const auto function = static_cast<Activation>(i);
      all.insert(all.end(), {{{3, 17}, function}, {{1}, function}, {{0, 4}, function}, {{5, 41}, function, 30.0}});
    }
    all.push_back({{2, 33000}, Activation::relu});
    all.push_back({{3, 7}, Activation::none});
    return all;
  }
  static std::vector<Params> bench() {
    std::vector<Params> all;
    for (const Activation function : {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
      all.push_back({{3072, 1536}, function});
    }
    return all;
  }
  static std::string describe(const Params& p) { return str(name_of(p.function), " ", p.shape, " up to ", p.range); }
  static std::vector<Input> inputs(const Params& p) { return {{.shape = p.shape, .low = -p.range, .high = p.range}}; }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::activation(in[0], p.function)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> y(p.shape);
    for (int64_t i = 0; i < y.numel(); ++i) y[i] = activation_oracle(p.function, in[0][i]);
    return {y};
  }
};
LAMINA_OP_CASE(ActivationCase);

}  // namespace
}  // namespace lamina::testing
