// Transformer-XL attention and its memory of earlier segments, against the formula for every pair of positions.
#include "support/block_oracle.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

constexpr int64_t kRelativeWidth = 8;

struct RelativeOracle {
  arch::Attention a;
  bool shared;
  /// Tokens per call; each call also sees the `memory` tokens before it. Default: one call.
  int64_t segment = 1000;
  int64_t memory = 0;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    const int64_t seq = x.dim(1);
    const int64_t heads = a.n_heads;
    const int64_t kv = *a.n_kv_heads;
    const int64_t width = *a.head_dim;
    const int64_t v_width = *a.v_head_dim;
    const Array<S> q = plain::linear(w, "mixer.q", x);
    const Array<S> k = plain::linear(w, "mixer.k", x);
    const Array<S> v = plain::linear(w, "mixer.v", x);
    const Array<S>& u_bias = w.at(shared ? "position.u" : "mixer.u");
    const Array<S>& v_bias = w.at(shared ? "position.v" : "mixer.v_bias");
    Array<S> waves(Shape{seq, kRelativeWidth});  // sinusoidal embedding of each distance
    for (int64_t t = 0; t < seq; ++t) {
      for (int64_t c = 0; c < kRelativeWidth / 2; ++c) {
        const double angle = static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(c) / kRelativeWidth);
        waves[t * kRelativeWidth + c] = S(std::sin(angle));
        waves[t * kRelativeWidth + kRelativeWidth / 2 + c] = S(std::cos(angle));
      }
    }
    const Array<S> r = plain::linear(w, "mixer.r", waves);
    Array<S> y(Shape{x.dim(0), seq, heads * v_width});
    for (int64_t at = 0; at < x.dim(0) * seq * heads; ++at) {
      const int64_t head = at % heads;
      const int64_t i = at / heads % seq;
      const int64_t first = at / heads - i;
      const int64_t kv_head = head / (heads / kv);
      const auto score = [&](int64_t j) {
        S sum(0);
        for (int64_t c = 0; c < width; ++c) {
          const S query = q[at * width + c];
          sum += (query + u_bias[head * width + c]) * k[((first + j) * kv + kv_head) * width + c];
          sum += (query + v_bias[head * width + c]) * r[((i - j) * heads + head) * width + c];
        }
        return sum * S(*a.scale);
      };
      const auto out = plain::attend<S>(
          i, v_width, [&](int64_t j) { return j >= i / segment * segment - (segment < seq ? memory : 0); }, score,
          [&](int64_t j, int64_t c) { return v[((first + j) * kv + kv_head) * v_width + c]; });
      for (int64_t c = 0; c < v_width; ++c) y[at * v_width + c] = out[static_cast<size_t>(c)];
    }
    return plain::linear(w, "mixer.o", y);
  }
};

// Tolerance: the library's tables are f32, and it adds angles where the oracle subtracts positions.
constexpr double kTables = 1e-6;

BlockPart relative_part(const arch::Attention& a, const arch::TransformerXl& position) {
  return BlockPart(one_block(kRelativeWidth, a, arch::NoFfn{}, position));
}
arch::Attention relative_of(const BlockPart& part) { return std::get<arch::Attention>(part.block().mixer); }
arch::Attention grouped() {
  return {.n_heads = 4, .n_kv_heads = 2, .head_dim = 3, .v_head_dim = 5, .bias = {true, true, true, true}};
}

TEST(RelativeAttention, HasTheListedWeights) {
  expect_listed_weights(relative_part({.n_heads = 2}, {}));
  expect_listed_weights(relative_part(grouped(), {.shared_bias = false}));
  EXPECT_EQ(relative_part({.n_heads = 2}, {}).weights().at("position.u").shape, (Shape{2, 4}));
}

TEST(RelativeAttention, ForwardAndGradientsAreThoseOfTheFormula) {
  const BlockPart shared = relative_part({.n_heads = 2}, {});
  expect_as_oracle(shared, {2, 7, kRelativeWidth}, RelativeOracle{relative_of(shared), true}, kTables);
  const BlockPart own = relative_part(grouped(), {.shared_bias = false});
  expect_as_oracle(own, {2, 7, kRelativeWidth}, RelativeOracle{relative_of(own), false}, kTables);
}

TEST(RelativeAttention, CachedSegmentsEqualTheFullForwardWhereTheMemoryCoversThem) {
  for (const bool shared : {true, false}) {
    const BlockPart part = relative_part(grouped(), {.shared_bias = shared});
    expect_cached_equals_full(part, part.input({2, 11, kRelativeWidth}), kTables);
    expect_ragged_rows_are_independent(part, kRelativeWidth, kTables);
    expect_documents_are_apart(part, kRelativeWidth, kTables);
  }
}

TEST(RelativeAttention, MemoryIsAsLongAsSaid) {
  const BlockPart part = relative_part(grouped(), {.memory = 2});
  const Tensor x = part.input({2, 9, kRelativeWidth});
  Array<double> plain_x(x.shape());
  plain_x.values = x.to_vector<double>();
  const RelativeOracle oracle{.a = relative_of(part), .shared = true, .segment = 3, .memory = 2};
  expect_near(part.cached(x, {3, 3, 3}), oracle(part.weights(), plain_x).values, kTables, "segments of three");
}

/// Training over segments: earlier segments affect the output but get no gradient.
TEST(RelativeAttention, GradientsStayInTheSegment) {
  const BlockPart part = relative_part({.n_heads = 2}, {});
  const Tensor before = part.input({1, 4, kRelativeWidth});
  Tensor x = part.input({1, 3, kRelativeWidth});
  const auto cache = part.mixer->make_cache(1, 8, DType::f64, part.device);
  Tape tape;
  tape.watch(x);
  for (Tensor& parameter : part.mixer->parameters()) tape.watch(parameter);
  nn::ForwardContext first{.batch = 1, .seq = 4};
  part.mixer->forward(before, first, cache.get());
  tape.reset();
  const auto loss = [&] {
    nn::ForwardContext second{.batch = 1, .seq = 3, .offset = 4};
    return ops::sum(part.mixer->forward(x, second, cache.get()));
  };
  tape.backward(loss());
  const std::vector<double> gradient = tape.grad(x).to_vector<double>();
  const double step = 1e-5;
  for (int64_t i = 0; i < x.numel(); i += 5) {
    NoGrad off(tape);
    Tensor element = x.detach().reshape({x.numel()}).slice(0, i, 1);
    const double value = element.item();
    element.fill_(value + step);
    const double above = loss().item();
    element.fill_(value - step);
    const double below = loss().item();
    element.fill_(value);
    EXPECT_NEAR(gradient[static_cast<size_t>(i)], (above - below) / (2 * step), 1e-7) << i;
  }
}

TEST(RelativeAttention, OddWidthIsRefused) {
  const auto spec = one_block(5, arch::Attention{.n_heads = 1}, arch::NoFfn{}, arch::TransformerXl{});
  expect_error([&] { const BlockPart part(spec); }, "d_model is 5");
}

}  // namespace
}  // namespace lamina::testing
