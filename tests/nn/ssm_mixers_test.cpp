// State-space mixers against plain recurrences written from the formulas.
#include <complex>

#include "lamina/base/error.h"
#include "nn/mamba2_oracle.h"

namespace lamina::testing {
namespace {

constexpr int64_t kSsmWidth = 6;

struct MambaOracle {
  arch::Mamba m;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    using std::exp;
    const int64_t seq = x.dim(1);
    const int64_t inner = *m.d_inner;
    const int64_t n = m.state;
    const int64_t rank = *m.dt_rank;
    const Array<S> both = plain::linear(w, "mixer.in", x);
    const Array<S> z = plain::columns(both, inner, inner);
    const Array<S> u = plain::conv_silu(w, "mixer.conv", plain::columns(both, 0, inner));
    const Array<S> tbc = plain::linear(w, "mixer.x", u);
    const Array<S> steps = plain::linear(w, "mixer.dt", normed(w, "mixer.dt_norm", plain::columns(tbc, 0, rank)));
    const Array<S> input = normed(w, "mixer.b_norm", plain::columns(tbc, rank, n));
    const Array<S> output = normed(w, "mixer.c_norm", plain::columns(tbc, rank + n, n));
    Array<S> y(u.shape);
    for (int64_t b = 0; b < x.dim(0); ++b) {
      std::vector<S> state(static_cast<size_t>(inner * n), S(0));
      for (int64_t t = b * seq; t < (b + 1) * seq; ++t) {
        for (int64_t c = 0; c < inner; ++c) {
          const S dt = plain::softplus(steps[t * inner + c]);
          S sum = w.at("mixer.d")[c] * u[t * inner + c];
          for (int64_t k = 0; k < n; ++k) {
            S& h = state[static_cast<size_t>(c * n + k)];
            const S decay = exp(dt * (S(0) - exp(w.at("mixer.a_log")[c * n + k])));
            h = decay * h + dt * input[t * n + k] * u[t * inner + c];
            sum += h * output[t * n + k];
          }
          y[t * inner + c] = sum * plain::silu(z[t * inner + c]);
        }
      }
    }
    return plain::linear(w, "mixer.out", y);
  }

  /// RMS norm, with or without a weight.
  template <class S>
  Array<S> normed(Weights<S> w, const std::string& name, const Array<S>& x) const {
    if (!m.norm) return x;
    if (w.find(name + ".weight") == w.end()) {
      Array<S> ones(Shape{x.dim(-1)});
      for (int64_t i = 0; i < ones.numel(); ++i) ones[i] = S(1);
      w.emplace(name + ".weight", ones);
    }
    return plain::rms_norm(w, name, x, std::visit([](const auto& norm) { return norm.eps; }, *m.norm));
  }
};

/// The S4D recurrence. Complex numbers are written as pairs, so that the loops also run on differentiable scalars.
struct S4dOracle {
  arch::S4d m;

  template <class S>
  Array<S> operator()(const Weights<S>& w, const Array<S>& x) const {
    using std::cos;
    using std::exp;
    using std::sin;
    const int64_t seq = x.dim(1);
    const int64_t width = x.dim(2);
    const int64_t n = m.state / 2;
    Array<S> y(x.shape);
    for (int64_t b = 0; b < x.dim(0); ++b) {
      for (int64_t c = 0; c < width; ++c) {
        const S dt = exp(w.at("mixer.log_dt")[c]);
        for (int64_t t = 0; t < seq; ++t)
          y[(b * seq + t) * width + c] = w.at("mixer.d")[c] * x[(b * seq + t) * width + c];
        for (int64_t k = c * n; k < (c + 1) * n; ++k) {
          const S re = S(0) - exp(w.at("mixer.a_log")[k]);
          const S im = w.at("mixer.a_imag")[k];
          const S z_re = exp(dt * re) * cos(dt * im);
          const S z_im = exp(dt * re) * sin(dt * im);
          // (z − 1) / a = (z − 1) · conj(a) / |a|²
          const S norm = re * re + im * im;
          const S f_re = ((z_re - S(1)) * re + z_im * im) / norm;
          const S f_im = (z_im * re - (z_re - S(1)) * im) / norm;
          const S c_re = w.at("mixer.c")[2 * k];
          const S c_im = w.at("mixer.c")[2 * k + 1];
          const S g_re = c_re * f_re - c_im * f_im;
          const S g_im = c_re * f_im + c_im * f_re;
          S h_re(0);
          S h_im(0);
          for (int64_t t = b * seq; t < (b + 1) * seq; ++t) {
            const S next = z_re * h_re - z_im * h_im + x[t * width + c];
            h_im = z_re * h_im + z_im * h_re;
            h_re = next;
            y[t * width + c] += S(2) * (g_re * h_re - g_im * h_im);
          }
        }
      }
    }
    for (int64_t i = 0; i < y.numel(); ++i) y[i] = plain::gelu(y[i]);
    const Array<S> both = plain::linear(w, "mixer.out", y);
    Array<S> out(x.shape);
    for (int64_t i = 0; i < out.numel(); ++i) {
      const int64_t row = i / width * 2 * width;
      out[i] = plain::sigmoid(both[row + i % width]) * both[row + width + i % width];
    }
    return out;
  }
};

template <class M>
BlockPart ssm_part(const M& mixer) {
  return BlockPart(one_block(kSsmWidth, mixer, arch::NoFfn{}));
}
template <class M>
const M& ssm_of(const BlockPart& part) {
  return std::get<M>(part.block().mixer);
}

std::vector<arch::Mamba> mambas() {
  return {{.state = 3, .conv = 4},
          {.state = 2, .conv = 2, .d_inner = 5, .dt_rank = 2, .bias = true, .conv_bias = false},
          {.state = 3, .dt_rank = 2, .norm = arch::RmsNorm{.eps = 1e-3}},
          {.state = 4, .norm = arch::RmsNormNoParams{.eps = 0.1}}};
}
std::vector<arch::Mamba2> mamba2s() {
  return {{.state = 3, .head_dim = 4, .chunk = 3},
          {.state = 2,
           .conv = 3,
           .d_inner = 8,
           .head_dim = 2,
           .groups = 2,
           .chunk = 4,
           .bias = true,
           .conv_bias = false,
           .norm_groups = 2,
           .dt_low = 0.5,
           .dt_high = 0.9},
          {.state = 2,
           .head_dim = 3,
           .in_scales = {0.5, 1.5, 0.7, 1.2, 0.9},
           .norm = arch::GatedNorm::before_gate,
           .norm_groups = 2},
          {.state = 3, .head_dim = 4, .in_scales = {2, 1, 1, 1, 0.5}, .norm = arch::GatedNorm::none}};
}
std::vector<arch::S4d> s4ds() { return {{.state = 4}, {.state = 2, .bias = false}}; }

TEST(SsmMixers, HaveTheListedWeights) {
  for (const auto& m : mambas()) expect_listed_weights(ssm_part(m));
  for (const auto& m : mamba2s()) expect_listed_weights(ssm_part(m));
  for (const auto& m : s4ds()) expect_listed_weights(ssm_part(m));
}

TEST(SsmMixers, ForwardAndGradientsAreThoseOfTheRecurrence) {
  for (const auto& m : mambas()) {
    const BlockPart part = ssm_part(m);
    expect_as_oracle(part, {2, 7, kSsmWidth}, MambaOracle{ssm_of<arch::Mamba>(part)});
  }
  for (const auto& m : mamba2s()) {
    const BlockPart part = ssm_part(m);
    expect_as_oracle(part, {2, 7, kSsmWidth}, Mamba2Oracle{ssm_of<arch::Mamba2>(part)});
  }
  for (const auto& m : s4ds()) {
    const BlockPart part = ssm_part(m);
    expect_as_oracle(part, {3, 7, kSsmWidth}, S4dOracle{m});  // convolution mode
    expect_as_oracle(part, {1, 7, kSsmWidth}, S4dOracle{m});  // recurrent mode
  }
}

template <class M>
void expect_good_cache(const M& mixer) {
  const BlockPart part = ssm_part(mixer);
  expect_cached_equals_full(part, part.input({2, 11, kSsmWidth}));
  expect_ragged_rows_are_independent(part, kSsmWidth);
  expect_documents_are_apart(part, kSsmWidth);
}

TEST(SsmMixers, CachedStepsEqualTheFullForward) {
  for (const auto& m : mambas()) expect_good_cache(m);
  for (const auto& m : mamba2s()) expect_good_cache(m);
  for (const auto& m : s4ds()) expect_good_cache(m);
}

TEST(SsmMixers, CacheHasOneSizeAndItsRowsCanBeResetAndReordered) {
  const BlockPart part = ssm_part(mambas()[0]);
  const int64_t inner = 2 * kSsmWidth;
  const auto cache = part.mixer->make_cache(2, 1000, DType::f32, part.device);
  EXPECT_EQ(cache->bytes(), 2 * inner * (3 + 3) * 4);
  EXPECT_EQ(part.mixer->make_cache(2, 1, DType::f32, part.device)->bytes(), cache->bytes());
  EXPECT_FALSE(cache->can_truncate());

  const Tensor x = part.input({2, 6, kSsmWidth});
  const auto states = part.mixer->make_cache(2, 8, DType::f64, part.device);
  nn::ForwardContext prompt{.batch = 2, .seq = 5};
  part.mixer->forward(x.slice(1, 0, 5), prompt, states.get());
  states->reorder(std::vector<int64_t>{1, 1});
  states->reset(1);
  nn::ForwardContext next{.batch = 2, .seq = 1, .offset = 5};
  const Tensor y = part.mixer->forward(x.slice(1, 5, 1), next, states.get());
  // Row 0 continues from row 1's state; row 1 starts from an empty state.
  Tensor mixed = x.slice(0, 1, 1).clone();
  mixed.slice(1, 5, 1).copy_(x.slice(0, 0, 1).slice(1, 5, 1));
  expect_near(y.slice(0, 0, 1).to_vector<double>(), part.forward(mixed).slice(1, 5, 1).to_vector<double>(), 1e-11,
              "row 0");
  expect_near(y.slice(0, 1, 1).to_vector<double>(), part.forward(x.slice(0, 1, 1).slice(1, 5, 1)).to_vector<double>(),
              1e-11, "row 1");
}

/// A cache in a narrower type than the model's rounds only the cached values.
TEST(SsmMixers, CacheMayBeNarrower) {
  const BlockPart part(one_block(kSsmWidth, mambas()[0], arch::NoFfn{}), 0.6, DType::f32);
  const Tensor x = part.input({1, 6, kSsmWidth}, DType::f32);
  const auto cache = part.mixer->make_cache(1, 8, DType::bf16, part.device);
  std::vector<double> all;
  for (int64_t t = 0; t < 6; ++t) {
    nn::ForwardContext pass{.batch = 1, .seq = 1, .offset = t};
    const auto y = part.mixer->forward(x.slice(1, t, 1), pass, cache.get()).to_vector<double>();
    all.insert(all.end(), y.begin(), y.end());
  }
  expect_near(all, part.forward(x).to_vector<double>(), 0x1p-6, "bf16 inputs of the convolution");
}

TEST(SsmMixers, InitialValuesAreThePapers) {
  const Device device = Device::cpu(1);
  const auto spec = one_block(64, arch::Mamba{.state = 4, .dt_min = 0.01, .dt_max = 0.1}, arch::NoFfn{});
  const nn::ParameterFactory make(device, {.seed = 3});
  nn::PositionTables positions(spec, make);
  const auto mixer = nn::make_mixer(spec, spec.layers[0].pattern[0], make, positions);
  const auto again = nn::make_mixer(spec, spec.layers[0].pattern[0], make, positions);
  for (const auto& [name, tensor] : mixer->state_dict()) {
    const auto values = tensor.to_vector<double>();
    if (name == "a_log") {
      // a_log is rounded to f32, so exp(a_log) has a relative error of at most |a_log| · epsilon.
      for (size_t i = 0; i < values.size(); ++i) {
        const double rate = 1.0 + static_cast<double>(i % 4);
        EXPECT_NEAR(std::exp(values[i]), rate, rate * std::log(rate) * epsilon(DType::f32));
      }
    }
    if (name == "d") {
      for (const double value : values) EXPECT_EQ(value, 1.0);
    }
    if (name != "dt.bias") continue;
    double low = 1;
    double high = 0;
    double mean = 0;
    for (const double value : values) {
      const double dt = std::log1p(std::exp(value));
      low = std::min(low, dt);
      high = std::max(high, dt);
      mean += std::log(dt) / static_cast<double>(values.size());
    }
    // The bias is about log(dt) and rounded to f32, as is the logarithm it comes from.
    const double slack = 2 * std::abs(std::log(0.01)) * epsilon(DType::f32);
    EXPECT_GE(low, 0.01 * (1 - slack));
    EXPECT_LE(high, 0.1 * (1 + slack));
    EXPECT_NEAR(mean, 0.5 * (std::log(0.01) + std::log(0.1)), 0.25);  // 128 draws with standard deviation 0.66
  }
  const auto first = mixer->state_dict();
  const auto second = again->state_dict();
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].tensor.to_vector<double>(), second[i].tensor.to_vector<double>()) << first[i].name;
  }
}

}  // namespace
}  // namespace lamina::testing
