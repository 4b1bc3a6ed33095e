#include "lamina/ops/ssm/causal_conv1d.h"

#include "support/op_case.h"

namespace lamina::testing {
namespace {

struct Conv {
  int64_t batch;
  int64_t seq;
  int64_t channels;
  int64_t kernel;
  bool bias = false;
  bool state = false;
  bool silu = false;

  std::string describe() const {
    return str("[", batch, ",", seq, ",", channels, "] kernel ", kernel, bias ? " bias" : "", state ? " state" : "",
               silu ? " silu" : "");
  }
  ops::ConvActivation activation() const { return silu ? ops::ConvActivation::silu : ops::ConvActivation::none; }
  Input state_input() const { return state ? Input{.shape = {batch, channels, kernel - 1}} : absent(); }
  Input bias_input() const { return bias ? Input{.shape = {channels}} : absent(); }

  /// Input of batch entry b at position t; negative t reads `before`.
  template <class S>
  S input_at(const Array<S>& x, const Array<S>& before, int64_t b, int64_t t, int64_t c) const {
    if (t >= 0) return x[(b * seq + t) * channels + c];
    return state ? before[(b * channels + c) * (kernel - 1) + kernel - 1 + t] : S(0);
  }
};

std::vector<Conv> conv_sweep() {
  return {{2, 7, 5, 4, true},
          {1, 1, 1, 1},
          {2, 1, 3, 4, true, true},
          {0, 4, 6, 3, true, true, true},
          {2, 0, 3, 4, false, true},
          {1, 70, 33, 4, true, true, true},
          {2, 9, 16, 1, false, true, true},
          {1, 5, 17, 9, true, true, true},
          {2, 131, 3, 2, false, false, true},
          {1, 6, 270, 3, true, false, true},
          {3, 20, 8, 7, false, true},
          {2, 150, 6, 4, true, true, true}};
}

struct CausalConv1dCase {
  static constexpr const char* name = "causal_conv1d";
  using Params = Conv;
  static std::vector<Params> sweep() { return conv_sweep(); }
  static std::vector<Params> bench() { return {{4, 2048, 1536, 4, true, false, true}}; }
  static std::string describe(const Params& p) { return p.describe(); }
  static std::vector<Input> inputs(const Params& p) {
    return {
        {.shape = {p.batch, p.seq, p.channels}}, {.shape = {p.channels, p.kernel}}, p.bias_input(), p.state_input()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::causal_conv1d(in[0], in[1], in[2], in[3], p.activation())};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    using std::exp;
    Array<S> y({p.batch, p.seq, p.channels});
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t t = 0; t < p.seq; ++t) {
        for (int64_t c = 0; c < p.channels; ++c) {
          S sum = p.bias ? in[2][c] : S(0);
          for (int64_t j = 0; j < p.kernel; ++j) {
            sum += in[1][c * p.kernel + j] * p.input_at(in[0], in[3], b, t - p.kernel + 1 + j, c);
          }
          y[(b * p.seq + t) * p.channels + c] = p.silu ? sum / (S(1) + exp(-sum)) : sum;
        }
      }
    }
    return {y};
  }
};
LAMINA_OP_CASE(CausalConv1dCase);

struct CausalConv1dStateCase {
  static constexpr const char* name = "causal_conv1d_state";
  static constexpr bool kBackward = false;
  using Params = Conv;
  static std::vector<Params> sweep() { return conv_sweep(); }
  static std::vector<Params> bench() { return {}; }
  static std::string describe(const Params& p) { return p.describe(); }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = {p.batch, p.seq, p.channels}}, p.state_input()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::causal_conv1d_state(in[0], p.kernel, in[1])};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> state({p.batch, p.channels, p.kernel - 1});
    for (int64_t i = 0; i < state.numel(); ++i) {
      const int64_t row = i / (p.kernel - 1);
      const int64_t t = p.seq - (p.kernel - 1) + i % (p.kernel - 1);
      state[i] = p.input_at(in[0], in[1], row / p.channels, t, row % p.channels);
    }
    return {state};
  }
};
LAMINA_OP_CASE(CausalConv1dStateCase);

struct CausalConv1dStepCase {
  static constexpr const char* name = "causal_conv1d_step";
  static constexpr bool kBackward = false;
  using Params = Conv;
  static std::vector<Params> sweep() {
    return {{2, 1, 5, 4, true, true, true},
            {1, 1, 1, 1, false, true},
            {0, 1, 6, 3, true, true},
            {3, 1, 37, 2, false, true, true},
            {2, 1, 9000, 4, true, true}};
  }
  static std::vector<Params> bench() { return {{1, 1, 1536, 4, true, true, true}}; }
  static std::string describe(const Params& p) { return p.describe(); }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = {p.batch, p.channels}}, {.shape = {p.channels, p.kernel}}, p.bias_input(), p.state_input()};
  }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    Tensor state = in[3].clone();
    const Tensor y = ops::causal_conv1d_step(in[0], state, in[1], in[2], p.activation());
    return {y, state};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> y = CausalConv1dCase::oracle<S>(p, in)[0];
    y.shape = {p.batch, p.channels};
    return {y, CausalConv1dStateCase::oracle<S>(p, {in[0], in[3]})[0]};
  }
};
LAMINA_OP_CASE(CausalConv1dStepCase);

}  // namespace
}  // namespace lamina::testing
