#include "lamina/ops/linear/feed_forward_step.h"

#include "ops/gated_oracle.h"
#include "ops/linear_oracle.h"
#include "ops/normed_stream.h"

namespace lamina::testing {
namespace {

using ops::Activation;
using ops::Gate;

struct StepParams {
  NormedStream stream;  ///< `out`: hidden width of the feed-forward; `bias`: of both products
  Activation activation = Activation::none;
  Gate gate = Gate::swiglu;
  ops::GateOptions options = {};

  std::vector<Input> inputs(int64_t rows, std::optional<DType> weights) const {
    const int64_t width = stream.shape[-1];
    std::vector<Input> all = stream.stream_inputs();
    all.push_back({.shape = {rows, width}, .dtype = weights});
    all.push_back(stream.bias ? Input{.shape = {rows}} : absent());
    all.push_back({.shape = {width, stream.out}, .dtype = weights});
    all.push_back(stream.bias ? Input{.shape = {width}} : absent());
    return all;
  }
  std::vector<Tensor> outputs(const std::vector<Tensor>& in, const ops::SublayerOutput& step) const {
    return {step.h, ops::sum_of_parts(step.parts, in[0])};
  }
  template <class S>
  Arrays<S> results(const Array<S>& h, const Array<S>& units, const Arrays<S>& in) const {
    return {h, linear_oracle(units, in[6], in[7], Activation::none)};
  }
};

/// A GPU runs one row in a single launch if the width is a multiple of 8 and the weights are bf16.
std::vector<NormedStream> step_streams() {
  return {{{1, 288}, 768, kRms, true, true, false, 0.0, 0, 6},
          {{1, 64}, 40, kLayer, true, true, true, 0.0, 0, 17},
          {{1, 264}, 136, kRms, false, false, true},
          {{1, 40}, 8, kRms, true, true, true, 1.0},
          {{1, 8}, 8, kLayer, false},
          {{1, 1040}, 200, kLayer, true, true, false, 0.0, 0, 3},
          {{1, 36}, 24, kRms, true, true, true, 0.0, 0, 2},  // the width is no multiple of 8
          {{1, 24}, 12, kRms},
          {{1, 32}, 16, kRms, true, true, false, 0.0, 16},  // grouped RMS norm
          {{3, 40}, 16, kRms, true, true, true, 0.0, 0, 2},
          {{9, 16}, 24, kLayer},
          {{0, 8}, 16}};
}

/// The size of a real model. Only for the forms without gradients, because their oracles are slow.
NormedStream large_stream() { return {{1, 1, 768}, 2048, kRms, true, true, false, 0.0, 0, 12}; }

std::vector<StepParams> step_benches() {
  return {{{{1, 288}, 768, kRms, true, true, false, 0.0, 0, 6}},
          {{{1, 768}, 2048, kRms, true, true, false, 0.0, 0, 12}}};
}

struct FeedForwardStepCase {
  static constexpr const char* name = "feed_forward_step";
  using Params = StepParams;
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }
  static std::vector<Params> sweep() {
    std::vector<Params> all;
    const Activation activations[] = {Activation::gelu, Activation::relu, Activation::silu, Activation::gelu_tanh};
    for (const NormedStream& stream : step_streams()) all.push_back({stream, activations[all.size() % 4]});
    return all;
  }
  static std::vector<Params> bench() { return {}; }
  static std::string describe(const Params& p) { return str(p.stream.describe(), " ", name_of(p.activation)); }
  static std::vector<Input> inputs(const Params& p) { return p.inputs(p.stream.out, {}); }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return p.outputs(
        in, ops::feed_forward_step(in[0], in[1], p.stream.norm(in), {in[4], in[5], in[6], in[7]}, p.activation));
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const Array<S> h = p.stream.value(in);
    return p.results(h, linear_oracle(p.stream.normed(h, in), in[4], in[5], p.activation), in);
  }
};
LAMINA_OP_CASE(FeedForwardStepCase);

struct FeedForwardStepOfBf16 : FeedForwardStepCase {
  static constexpr const char* form = "of_bf16";
  static constexpr bool kBackward = false;
  static std::vector<DType> dtypes() { return {DType::f32}; }
  static std::vector<Params> sweep() {
    std::vector<Params> all = FeedForwardStepCase::sweep();
    all.push_back({large_stream(), Activation::relu});
    return all;
  }
  static std::vector<Params> bench() { return step_benches(); }
  static std::vector<Input> inputs(const Params& p) { return p.inputs(p.stream.out, DType::bf16); }
};
LAMINA_OP_CASE(FeedForwardStepOfBf16);

struct GatedFeedForwardStepCase {
  static constexpr const char* name = "gated_feed_forward_step";
  using Params = StepParams;
  static std::vector<DType> dtypes() { return {DType::f32, DType::f64}; }
  static std::vector<Params> sweep() {
    std::vector<Params> all;
    const Gate gates[] = {Gate::swiglu, Gate::geglu, Gate::reglu, Gate::glu, Gate::liglu};
    for (const NormedStream& stream : step_streams()) {
      all.push_back({stream, Activation::none, gates[all.size() % 5], {.interleaved = all.size() % 3 == 2}});
    }
    all.push_back({{{1, 48}, 24}, Activation::none, Gate::swiglu, {.alpha = 1.702, .limit = 1.25, .up_offset = 1.0}});
    return all;
  }
  static std::vector<Params> bench() { return {}; }
  static std::string describe(const Params& p) {
    return str(p.stream.describe(), " ", name_of(p.gate), p.options.interleaved ? " interleaved" : "", " alpha ",
               p.options.alpha);
  }
  static std::vector<Input> inputs(const Params& p) { return p.inputs(2 * p.stream.out, {}); }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return p.outputs(in, ops::gated_feed_forward_step(in[0], in[1], p.stream.norm(in), {in[4], in[5], in[6], in[7]},
                                                      p.gate, p.options));
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    const Array<S> h = p.stream.value(in);
    const Array<S> joined = linear_oracle(p.stream.normed(h, in), in[4], in[5], Activation::none);
    return p.results(h, gated_oracle(joined, p.gate, p.options), in);
  }
};
LAMINA_OP_CASE(GatedFeedForwardStepCase);

struct GatedFeedForwardStepOfBf16 : GatedFeedForwardStepCase {
  static constexpr const char* form = "of_bf16";
  static constexpr bool kBackward = false;
  static std::vector<DType> dtypes() { return {DType::f32}; }
  static std::vector<Params> sweep() {
    std::vector<Params> all = GatedFeedForwardStepCase::sweep();
    all.push_back({large_stream(), Activation::none, Gate::swiglu});
    return all;
  }
  static std::vector<Params> bench() { return step_benches(); }
  static std::vector<Input> inputs(const Params& p) { return p.inputs(2 * p.stream.out, DType::bf16); }
};
LAMINA_OP_CASE(GatedFeedForwardStepOfBf16);

}  // namespace
}  // namespace lamina::testing
