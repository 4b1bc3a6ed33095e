// Linear attention in all its kinds, against plain loops written from the formulas.
#include "lamina/nn/mixers/state_cache.h"
#include "support/block_oracle.h"

namespace lamina::testing {
namespace {

constexpr int64_t kLinearWidth = 6;

/// The sums over all earlier positions, without a state.
struct LightningOracle {
  arch::Lightning m;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    using std::exp;
    const int64_t seq = x.dim(1);
    const int64_t d = *m.head_dim;
    const int64_t width = m.n_heads * d;
    const auto projected = [&](const char* name) {
      Array<S> part = plain::linear(w, name, x);
      for (int64_t i = 0; i < part.numel(); ++i) part[i] = plain::silu(part[i]);
      return part;
    };
    const Array<S> q = projected("mixer.q");
    const Array<S> k = projected("mixer.k");
    const Array<S> v = projected("mixer.v");
    Array<S> y(q.shape);
    for (int64_t at = 0; at < y.numel(); ++at) {
      const int64_t head = at % width / d;
      const int64_t row = at / width;
      const double rate = std::pow(2.0, -8.0 * static_cast<double>(head + 1) / static_cast<double>(m.n_heads)) *
                          (m.slower_with_depth ? 1.00001 : 1.0);  // layer 0 of 1
      S sum(0);
      for (int64_t back = 0; back <= row % seq; ++back) {
        S score(0);
        for (int64_t c = 0; c < d; ++c) score += q[row * width + head * d + c] * k[(row - back) * width + head * d + c];
        sum += S(std::exp(-rate * static_cast<double>(back))) * score * v[(row - back) * width + at % width];
      }
      y[at] = sum;
    }
    y = plain::rms_norm(w, "mixer.norm", y, m.norm_eps);
    const Array<S> gate = plain::linear(w, "mixer.gate", x);
    for (int64_t i = 0; i < y.numel(); ++i) y[i] = y[i] * plain::sigmoid(gate[i]);
    return plain::linear(w, "mixer.o", y);
  }
};

std::vector<arch::Lightning> lightnings() {
  return {{.n_heads = 2}, {.n_heads = 1, .head_dim = 5, .slower_with_depth = false, .chunk = 3}};
}

/// x_t · mix + x_{t−1} · (1 − mix).
template <class S>
Array<S> shifted(const Weights<S>& w, const char* mix, const Array<S>& x) {
  const Array<S>& m = w.at(mix);
  const int64_t width = x.dim(2);
  Array<S> y(x.shape);
  for (int64_t at = 0; at < y.numel(); ++at) {
    const S before = at / width % x.dim(1) == 0 ? S(0) : x[at - width];
    y[at] = x[at] * m[at % width] + before * (S(1) - m[at % width]);
  }
  return y;
}

struct WkvOracle {
  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    using std::exp;
    const int64_t seq = x.dim(1);
    const Array<S> k = plain::linear(w, "mixer.k", shifted(w, "mixer.mix_k", x));
    const Array<S> v = plain::linear(w, "mixer.v", shifted(w, "mixer.mix_v", x));
    const Array<S> r = plain::linear(w, "mixer.r", shifted(w, "mixer.mix_r", x));
    const int64_t width = k.dim(2);
    Array<S> y(k.shape);
    for (int64_t at = 0; at < y.numel(); ++at) {
      const int64_t c = at % width;
      S weight = exp(w.at("mixer.first")[c] + k[at]);
      S above = weight * v[at];
      S below = weight;
      for (int64_t back = 1; back <= at / width % seq; ++back) {
        const int64_t past = at - back * width;
        weight = exp(k[past] - S(static_cast<double>(back - 1)) * exp(w.at("mixer.decay")[c]));
        above += weight * v[past];
        below += weight;
      }
      y[at] = plain::sigmoid(r[at]) * above / below;
    }
    return plain::linear(w, "mixer.o", y);
  }
};

struct ChannelMixOracle {
  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    Array<S> k = plain::linear(w, "mixer.k", shifted(w, "mixer.mix_k", x));
    for (int64_t i = 0; i < k.numel(); ++i) k[i] = k[i] > S(0) ? k[i] * k[i] : S(0);
    const Array<S> gate = plain::linear(w, "mixer.r", shifted(w, "mixer.mix_r", x));
    Array<S> y = plain::linear(w, "mixer.v", k);
    for (int64_t i = 0; i < y.numel(); ++i) y[i] = y[i] * plain::sigmoid(gate[i]);
    return y;
  }
};

struct GatedDeltaOracle {
  arch::GatedDelta m;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    using std::exp;
    const int64_t seq = x.dim(1);
    const int64_t keys = *m.n_key_heads * m.key_dim;
    const int64_t values = m.n_heads * m.value_dim;
    const int64_t width = 2 * keys + values;
    Array<S> joined(Shape{x.dim(0), seq, width});
    int64_t begin = 0;
    for (const char* name : {"mixer.q", "mixer.k", "mixer.v"}) {
      const Array<S> part = plain::linear(w, name, x);
      for (int64_t i = 0; i < part.numel(); ++i) joined[i / part.dim(2) * width + begin + i % part.dim(2)] = part[i];
      begin += part.dim(2);
    }
    Array<S> qkv = plain::conv_silu(w, "mixer.conv", joined);
    for (int64_t row = 0; row < x.dim(0) * seq; ++row) {
      for (int64_t head = 0; head < 2 * *m.n_key_heads; ++head) unit(qkv, row * width + head * m.key_dim);
    }
    const Array<S> a = plain::linear(w, "mixer.a", x);
    const Array<S> b = plain::linear(w, "mixer.b", x);
    Array<S> y(Shape{x.dim(0), seq, values});
    for (int64_t column = 0; column < x.dim(0) * values; ++column) {
      const int64_t j = column % values;
      const int64_t head = j / m.value_dim;
      const int64_t key_head = head / (m.n_heads / *m.n_key_heads);
      std::vector<S> state(static_cast<size_t>(m.key_dim), S(0));
      for (int64_t t = column / values * seq; t < (column / values + 1) * seq; ++t) {
        const int64_t gate = t * m.n_heads + head;
        const S step = plain::softplus(a[gate] + w.at("mixer.dt_bias")[head]);
        const S decay = exp(S(0) - exp(w.at("mixer.a_log")[head]) * step);
        const int64_t q = t * width + key_head * m.key_dim;
        S held(0);
        for (int64_t i = 0; i < m.key_dim; ++i) {
          S& s = state[static_cast<size_t>(i)];
          s = decay * s;
          held += s * qkv[q + keys + i];
        }
        const S change = plain::sigmoid(b[gate]) * (qkv[t * width + 2 * keys + j] - held);
        S sum(0);
        for (int64_t i = 0; i < m.key_dim; ++i) {
          S& s = state[static_cast<size_t>(i)];
          s += change * qkv[q + keys + i];
          sum += s * qkv[q + i] / S(std::sqrt(static_cast<double>(m.key_dim)));
        }
        y[t * values + j] = sum;
      }
    }
    Array<S> heads = y;
    heads.shape = {x.dim(0), seq, m.n_heads, m.value_dim};
    const Array<S> normed = plain::rms_norm(w, "mixer.norm", heads, m.norm_eps);
    const Array<S> z = plain::linear(w, "mixer.z", x);
    for (int64_t i = 0; i < y.numel(); ++i) y[i] = normed[i] * plain::silu(z[i]);
    return plain::linear(w, "mixer.o", y);
  }

  /// Divides key_dim numbers by their length.
  template <class S>
  void unit(Array<S>& x, int64_t begin) const {
    using std::sqrt;
    S sum(1e-6);
    for (int64_t i = 0; i < m.key_dim; ++i) sum += x[begin + i] * x[begin + i];
    const S length = sqrt(sum);
    for (int64_t i = 0; i < m.key_dim; ++i) x[begin + i] = x[begin + i] / length;
  }
};

std::vector<arch::GatedDelta> deltas() {
  return {{.n_heads = 4, .n_key_heads = 2, .key_dim = 3, .value_dim = 5},
          {.n_heads = 1, .key_dim = 4, .value_dim = 2, .conv = 1}};
}

BlockPart linear_part(const arch::Mixer& mixer) { return BlockPart(one_block(kLinearWidth, mixer, arch::NoFfn{})); }

TEST(LinearAttention, HasTheListedWeights) {
  for (const auto& m : lightnings()) expect_listed_weights(linear_part(m));
  expect_listed_weights(linear_part(arch::Wkv{.width = 10}));
  expect_listed_weights(linear_part(arch::ChannelMix{}));
  for (const auto& m : deltas()) expect_listed_weights(linear_part(m));
}

TEST(LinearAttention, ForwardAndGradientsAreThoseOfTheFormulas) {
  for (const auto& m : lightnings()) {
    const BlockPart part = linear_part(m);
    expect_as_oracle(part, {2, 7, kLinearWidth}, LightningOracle{std::get<arch::Lightning>(part.block().mixer)});
  }
  for (const auto& m : {arch::Wkv{}, arch::Wkv{.width = 10}}) {
    expect_as_oracle(linear_part(m), {2, 7, kLinearWidth}, WkvOracle{});
  }
  expect_as_oracle(linear_part(arch::ChannelMix{.d_ff = 9}), {2, 7, kLinearWidth}, ChannelMixOracle{});
  for (const auto& m : deltas()) {
    const BlockPart part = linear_part(m);
    expect_as_oracle(part, {2, 7, kLinearWidth}, GatedDeltaOracle{std::get<arch::GatedDelta>(part.block().mixer)});
  }
}

TEST(LinearAttention, CachedStepsEqualTheFullForward) {
  std::vector<arch::Mixer> mixers;
  for (const auto& m : lightnings()) mixers.emplace_back(m);
  mixers.emplace_back(arch::Wkv{.width = 10});
  mixers.emplace_back(arch::ChannelMix{});
  for (const auto& m : deltas()) mixers.emplace_back(m);
  for (const auto& mixer : mixers) {
    const BlockPart part = linear_part(mixer);
    expect_cached_equals_full(part, part.input({2, 11, kLinearWidth}));
    expect_ragged_rows_are_independent(part, kLinearWidth);
    expect_documents_are_apart(part, kLinearWidth);
  }
}

/// The last layer forgets least: its rates are near 0.
TEST(LinearAttention, DecaysSlowDownWithDepth) {
  arch::ArchSpec spec = one_block(kLinearWidth, arch::Lightning{.n_heads = 2}, arch::NoFfn{});
  spec.layers[0].repeat = 3;
  const Device device = Device::cpu(1);
  const nn::ParameterFactory make(device, {.dtype = DType::f64});
  nn::PositionTables positions(spec, make);
  const auto mixer = nn::make_mixer(spec, spec.layers[0].pattern[0], make, positions);
  const Tensor zeros = Tensor::zeros({1, 1, kLinearWidth}, DType::f64, device);
  for (const int64_t layer : {0, 1, 2}) {
    const auto cache = mixer->make_cache(1, 4, DType::f64, device);
    auto& states = dynamic_cast<nn::StateCache&>(*cache);
    states.keep_scan(Tensor::full({1, 2, 3, 3}, 1.0, DType::f64, device));
    nn::ForwardContext pass{.batch = 1, .seq = 1};
    pass.layer = layer;
    mixer->forward(zeros, pass, cache.get());  // no input: the state only decays
    const std::vector<double> state = states.scan(DType::f64).to_vector<double>();
    const double factor = 1.0 - static_cast<double>(layer) / (2 + 1e-5) + 1e-5;
    EXPECT_NEAR(state.front(), std::exp(-factor / 16), 1e-12) << layer;
    EXPECT_NEAR(state.back(), std::exp(-factor / 256), 1e-12) << layer;
  }
}

TEST(LinearAttention, CachesHoldWhatThePlanCounts) {
  const BlockPart lightning = linear_part(arch::Lightning{.n_heads = 2});
  const auto cache = lightning.mixer->make_cache(2, 50, DType::f32, lightning.device);
  EXPECT_EQ(cache->bytes(), 2 * 2 * 3 * 3 * 4);
  EXPECT_FALSE(cache->can_truncate());
  const BlockPart delta = linear_part(arch::GatedDelta{.n_heads = 4, .n_key_heads = 2, .key_dim = 3, .value_dim = 5});
  const int64_t delta_state = 4 * 5 * 3 + (2 * 2 * 3 + 4 * 5) * 3;
  EXPECT_EQ(delta.mixer->make_cache(2, 50, DType::f32, delta.device)->bytes(), 2 * delta_state * 4);
  const BlockPart wkv = linear_part(arch::Wkv{.width = 10});
  EXPECT_EQ(wkv.mixer->make_cache(2, 50, DType::f32, wkv.device)->bytes(), 2 * (3 * 10 + kLinearWidth) * 4);
  const BlockPart channels = linear_part(arch::ChannelMix{});
  EXPECT_EQ(channels.mixer->make_cache(2, 50, DType::f32, channels.device)->bytes(), 2 * kLinearWidth * 4);
}

}  // namespace
}  // namespace lamina::testing
