// Gated short convolutions, linear recurrent units, and attention beside Mamba-2, against plain loops written from the
// formulas.
#include "nn/mamba2_oracle.h"

namespace lamina::testing {
namespace {

constexpr int64_t kHybridWidth = 6;

struct ShortConvOracle {
  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    const int64_t width = x.dim(2);
    const Array<S> all = plain::linear(w, "mixer.in", x);
    Array<S> gated = plain::columns(all, 2 * width, width);
    for (int64_t i = 0; i < gated.numel(); ++i) gated[i] = gated[i] * all[i / width * 3 * width + i % width];
    Array<S> y = plain::conv(w, "mixer.conv", gated);
    for (int64_t i = 0; i < y.numel(); ++i) y[i] = y[i] * all[i / width * 3 * width + width + i % width];
    return plain::linear(w, "mixer.out", y);
  }
};

struct RgLruOracle {
  arch::RgLru m;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    using std::exp;
    using std::sqrt;
    const int64_t seq = x.dim(1);
    const int64_t width = *m.width;
    Array<S> y = plain::linear(w, "mixer.y", x);
    const Array<S> u = plain::conv(w, "mixer.conv", plain::linear(w, "mixer.x", x));
    const Array<S> input = gate(w, "mixer.input_gate", u);
    const Array<S> recurrence = gate(w, "mixer.recurrence_gate", u);
    for (int64_t c = 0; c < width; ++c) {
      const S rate = S(8) * plain::softplus(w.at("mixer.decay")[c]);
      for (int64_t b = 0; b < x.dim(0); ++b) {
        S h(0);
        for (int64_t t = 0; t < seq; ++t) {
          const int64_t at = (b * seq + t) * width + c;
          const S a = exp(-rate * recurrence[at]);
          const S scale = t == 0 ? S(1) : sqrt(S(1) - a * a);
          h = a * h + scale * input[at] * u[at];
          y[at] = h * gelu_tanh(y[at]);
        }
      }
    }
    return plain::linear(w, "mixer.out", y);
  }

  /// σ of a block-diagonal projection with weights [blocks, in, out].
  template <class S>
  Array<S> gate(const Weights<S>& w, const std::string& name, const Array<S>& u) const {
    const Array<S>& weight = w.at(name + ".weight");
    const int64_t size = *m.width / m.blocks;
    Array<S> y(u.shape);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const int64_t column = i % *m.width;
      const int64_t block = column / size;
      S sum = w.at(name + ".bias")[column];
      for (int64_t k = 0; k < size; ++k) {
        sum += u[i - column + block * size + k] * weight[(block * size + k) * size + column % size];
      }
      y[i] = plain::sigmoid(sum);
    }
    return y;
  }

  template <class S>
  static S gelu_tanh(const S& x) {
    using std::exp;
    const S inner = S(0.79788456080286535588) * (x + S(0.044715) * x * x * x);
    return x * (S(1) - S(1) / (exp(S(2) * inner) + S(1)));
  }
};

template <class S>
Array<S> times(Array<S> x, double factor) {
  for (int64_t i = 0; i < x.numel(); ++i) x[i] = x[i] * S(factor);
  return x;
}

struct AttentionMamba2Oracle {
  arch::AttentionMamba2 m;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    const Array<S> attended = attend(w, times(x, m.attention_in));
    const Array<S> scanned = Mamba2Oracle{m.mamba2}(w, times(x, m.mamba2_in));
    Array<S> y(x.shape);
    for (int64_t i = 0; i < y.numel(); ++i) {
      y[i] = attended[i] * S(m.attention_out) + scanned[i] * S(m.mamba2_out);
    }
    return y;
  }

  template <class S>
  Array<S> attend(const Weights<S>& w, const Array<S>& x) const {
    const arch::Attention& a = m.attention;
    const int64_t batch = x.dim(0);
    const int64_t seq = x.dim(1);
    const int64_t width = *a.head_dim;
    const int64_t shared = a.n_heads / *a.n_kv_heads;
    const auto rotated = [&](const char* name, int64_t heads) {
      Array<S> part = plain::linear(w, name, x);
      part.shape = {batch, seq, heads, width};
      return plain::rotate(part, width, std::get<arch::Rope>(*a.position).theta, false);
    };
    const Array<S> q = rotated("mixer.q", a.n_heads);
    const Array<S> k = rotated("mixer.k", *a.n_kv_heads);
    const Array<S> v = plain::linear(w, "mixer.v", x);
    Array<S> y(Shape{batch, seq, a.n_heads * width});
    for (int64_t row = 0; row < batch * seq * a.n_heads; ++row) {
      const int64_t head = row % a.n_heads;
      const int64_t i = row / a.n_heads % seq;
      const int64_t first = row / a.n_heads - i;  // first row of the sequence
      const auto key = [&](int64_t j) { return ((first + j) * *a.n_kv_heads + head / shared) * width; };
      const auto score = [&](int64_t j) {
        S sum(0);
        for (int64_t c = 0; c < width; ++c) sum += q[row * width + c] * k[key(j) + c];
        return sum * S(*a.scale);
      };
      const auto out = plain::attend<S>(
          i, width, [](int64_t) { return true; }, score, [&](int64_t j, int64_t c) { return v[key(j) + c]; });
      for (int64_t c = 0; c < width; ++c) y[row * width + c] = out[static_cast<size_t>(c)];
    }
    return plain::linear(w, "mixer.o", y);
  }
};

std::vector<arch::RgLru> lrus() { return {{}, {.width = 8, .blocks = 2, .conv = 3}, {.blocks = 6, .conv = 1}}; }
std::vector<arch::ShortConv> short_convs() { return {{}, {.conv = 2, .bias = true}, {.conv = 1}}; }

arch::AttentionMamba2 both_mixers(bool scaled) {
  arch::AttentionMamba2 both;
  both.attention.n_heads = 2;
  both.attention.n_kv_heads = 1;
  both.attention.head_dim = 4;
  both.mamba2 = {.state = 3, .head_dim = 4, .chunk = 3, .norm = arch::GatedNorm::none};
  if (!scaled) return both;
  both.attention_in = 0.9;
  both.attention_out = 1.3;
  both.mamba2_in = 0.7;
  both.mamba2_out = 1.1;
  return both;
}

BlockPart part_of(const arch::Mixer& mixer) {
  return BlockPart(one_block(kHybridWidth, mixer, arch::NoFfn{}, arch::Rope{}));
}

TEST(HybridMixers, HaveTheListedWeights) {
  for (const auto& m : short_convs()) expect_listed_weights(part_of(m));
  for (const auto& m : lrus()) expect_listed_weights(part_of(m));
  for (const bool scaled : {false, true}) expect_listed_weights(part_of(both_mixers(scaled)));
}

TEST(HybridMixers, ForwardAndGradientsAreThoseOfTheFormulas) {
  for (const auto& m : short_convs()) expect_as_oracle(part_of(m), {2, 7, kHybridWidth}, ShortConvOracle{});
  for (const auto& m : lrus()) {
    const BlockPart part = part_of(m);
    expect_as_oracle(part, {2, 7, kHybridWidth}, RgLruOracle{std::get<arch::RgLru>(part.block().mixer)});
  }
  for (const bool scaled : {false, true}) {
    const BlockPart part = part_of(both_mixers(scaled));
    expect_as_oracle(part, {2, 7, kHybridWidth},
                     AttentionMamba2Oracle{std::get<arch::AttentionMamba2>(part.block().mixer)});
  }
}

TEST(HybridMixers, CachedStepsEqualTheFullForward) {
  std::vector<arch::Mixer> mixers;
  for (const auto& m : short_convs()) mixers.emplace_back(m);
  for (const auto& m : lrus()) mixers.emplace_back(m);
  for (const bool scaled : {false, true}) mixers.emplace_back(both_mixers(scaled));
  for (const auto& mixer : mixers) {
    const BlockPart part = part_of(mixer);
    expect_cached_equals_full(part, part.input({2, 11, kHybridWidth}));
    expect_ragged_rows_are_independent(part, kHybridWidth);
  }
  for (const auto& m : short_convs()) expect_documents_are_apart(part_of(m), kHybridWidth);
  for (const auto& m : lrus()) expect_documents_are_apart(part_of(m), kHybridWidth);
}

TEST(HybridMixers, DecaysStartSlow) {
  const Device device = Device::cpu(1);
  const auto spec = one_block(64, arch::RgLru{}, arch::NoFfn{});
  const nn::ParameterFactory make(device, {.seed = 3});
  nn::PositionTables positions(spec, make);
  for (const auto& [name, tensor] : nn::make_mixer(spec, spec.layers[0].pattern[0], make, positions)->state_dict()) {
    if (name != "decay") continue;
    for (const double value : tensor.to_vector<double>()) {
      const double a = std::exp(-std::log1p(std::exp(value)));
      // exp(−softplus(λ)) with λ rounded to f32 and at most |log(1/0.999 − 1)| < 8
      EXPECT_GE(a, 0.9 * (1 - 8 * epsilon(DType::f32)));
      EXPECT_LE(a, 0.999 * (1 + 8 * epsilon(DType::f32)));
    }
  }
}

TEST(HybridMixers, CachesHoldWhatThePlanCounts) {
  const BlockPart lru = part_of(arch::RgLru{.width = 8});
  EXPECT_EQ(lru.mixer->make_cache(2, 50, DType::f32, lru.device)->bytes(), 2 * (8 * 4 + 1) * 4);
  const BlockPart conv = part_of(arch::ShortConv{.conv = 4});
  EXPECT_EQ(conv.mixer->make_cache(2, 50, DType::f32, conv.device)->bytes(), 2 * kHybridWidth * 3 * 4);
  EXPECT_FALSE(conv.mixer->make_cache(2, 50, DType::f32, conv.device)->can_truncate());
  const BlockPart both = part_of(both_mixers(false));
  const auto cache = both.mixer->make_cache(2, 50, DType::f32, both.device);
  const int64_t state = 12 * 3 + (12 + 2 * 3) * 3;
  EXPECT_EQ(cache->bytes(), 2 * (50 * 2 * 4 + state) * 4);
  EXPECT_FALSE(cache->can_truncate());
}

}  // namespace
}  // namespace lamina::testing
