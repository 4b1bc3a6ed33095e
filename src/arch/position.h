#pragma once

#include "lamina/arch/fields.h"

namespace lamina::arch {

/// Scaling of RoPE's frequencies θ_i = theta^{-2i/d}, for sequences longer than in training.
struct NoScaling {
  static constexpr std::string_view kKind = "none";
  static constexpr std::string_view kDoc = "unscaled frequencies";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const NoScaling&) const = default;
};

struct LinearScaling {
  static constexpr std::string_view kKind = "linear";
  static constexpr std::string_view kDoc = "position interpolation: positions / factor (arXiv:2306.15595)";
  double factor = 1.0;
  static void visit_fields(auto& self, auto&& field) {
    field("factor", self.factor, "ratio of the new length to the training length");
  }
  bool operator==(const LinearScaling&) const = default;
};

struct NtkScaling {
  static constexpr std::string_view kKind = "ntk";
  static constexpr std::string_view kDoc = "NTK-aware: theta · factor^{d/(d-2)}, the same for every length";
  double factor = 1.0;
  static void visit_fields(auto& self, auto&& field) {
    field("factor", self.factor, "ratio of the new length to the training length");
  }
  bool operator==(const NtkScaling&) const = default;
};

struct DynamicNtkScaling {
  static constexpr std::string_view kKind = "dynamic_ntk";
  static constexpr std::string_view kDoc =
      "NTK-aware by length: theta · (factor·seq/original_length - (factor-1))^{d/(d-2)} once seq > original_length";
  double factor = 1.0;
  std::optional<int64_t> original_length;
  static void visit_fields(auto& self, auto&& field) {
    field("factor", self.factor, "how fast theta grows with the length");
    field("original_length", self.original_length, "training length; required");
  }
  bool operator==(const DynamicNtkScaling&) const = default;
};

struct YarnScaling {
  static constexpr std::string_view kKind = "yarn";
  static constexpr std::string_view kDoc =
      "interpolate low frequencies, keep high ones, ramp between (arXiv:2309.00071)";
  double factor = 1.0;
  std::optional<int64_t> original_length;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::optional<double> attention_factor;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  bool truncate = true;
  static void visit_fields(auto& self, auto&& field) {
    field("factor", self.factor, "ratio of the new length to the training length");
    field("original_length", self.original_length, "training length; required");
    field("beta_fast", self.beta_fast, "frequencies with more rotations than this within original_length are kept");
    field("beta_slow", self.beta_slow, "frequencies with fewer rotations than this are interpolated");
    field("attention_factor", self.attention_factor,
          "factor on cos and sin; default m(mscale)/m(mscale_all_dim) if both are given, else m(1), with "
          "m(s) = 0.1·s·ln(factor) + 1");
    field("mscale", self.mscale, "s in the numerator of attention_factor");
    field("mscale_all_dim", self.mscale_all_dim, "s in its denominator; mla also multiplies its scale by m(s)^2");
    field("truncate", self.truncate, "round the ramp's ends to whole dimensions");
  }
  bool operator==(const YarnScaling&) const = default;
};

struct Llama3Scaling {
  static constexpr std::string_view kKind = "llama3";
  static constexpr std::string_view kDoc = "frequency bands: low ones / factor, high ones kept, blend between";
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::optional<int64_t> original_length;
  static void visit_fields(auto& self, auto&& field) {
    field("factor", self.factor, "ratio of the new length to the training length");
    field("low_freq_factor", self.low_freq_factor, "wavelengths above original_length / this are interpolated");
    field("high_freq_factor", self.high_freq_factor, "wavelengths below original_length / this are kept");
    field("original_length", self.original_length, "training length; required");
  }
  bool operator==(const Llama3Scaling&) const = default;
};

struct LongRopeScaling {
  static constexpr std::string_view kKind = "longrope";
  static constexpr std::string_view kDoc =
      "a factor per frequency, with separate lists up to and beyond original_length (arXiv:2402.13753)";
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  std::optional<int64_t> original_length;
  std::optional<double> attention_factor;
  static void visit_fields(auto& self, auto&& field) {
    field("short_factor", self.short_factor, "divisors of the rotary_dim/2 frequencies up to original_length");
    field("long_factor", self.long_factor, "divisors beyond original_length");
    field("original_length", self.original_length, "training length; required");
    field("attention_factor", self.attention_factor,
          "factor on cos and sin; default sqrt(1 + ln(context/original_length)/ln(original_length)), at least 1");
  }
  bool operator==(const LongRopeScaling&) const = default;
};

/// Scaling of RoPE's frequencies.
using RopeScaling =
    std::variant<NoScaling, LinearScaling, NtkScaling, DynamicNtkScaling, YarnScaling, Llama3Scaling, LongRopeScaling>;

/// Which elements of a head RoPE rotates together: x_i with x_{i+d/2}, or x_{2i} with x_{2i+1}.
enum class Pairing : uint8_t { half_split, interleaved };
constexpr auto names_of(Pairing) { return std::array<std::string_view, 2>{"half_split", "interleaved"}; }

struct NoPosition {
  static constexpr std::string_view kKind = "none";
  static constexpr std::string_view kDoc = "no position information except the causal mask";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const NoPosition&) const = default;
};

struct LearnedPosition {
  static constexpr std::string_view kKind = "learned";
  static constexpr std::string_view kDoc = "a learned row per position, added to the token's embedding";
  std::optional<int64_t> length;
  int64_t offset = 0;
  static void visit_fields(auto& self, auto&& field) {
    field("length", self.length, "longest sequence; default context");
    field("offset", self.offset, "unused rows before position 0; the table has length + offset rows", kCount);
  }
  bool operator==(const LearnedPosition&) const = default;
};

struct SinusoidalPosition {
  static constexpr std::string_view kKind = "sinusoidal";
  static constexpr std::string_view kDoc = "sin and cos of pos/theta^{2i/d}, added to the token's embedding";
  double theta = 10000.0;
  static void visit_fields(auto& self, auto&& field) { field("theta", self.theta, "longest wavelength / 2π"); }
  bool operator==(const SinusoidalPosition&) const = default;
};

struct Rope {
  static constexpr std::string_view kKind = "rope";
  static constexpr std::string_view kDoc =
      "rotary positions: rotates queries and keys by their position (arXiv:2104.09864)";
  double theta = 10000.0;
  double fraction = 1.0;
  std::optional<int64_t> rotary_dim;
  Pairing pairing = Pairing::half_split;
  RopeScaling scaling;
  static void visit_fields(auto& self, auto&& field) {
    field("theta", self.theta, "base of the frequencies theta^{-2i/rotary_dim}");
    field("fraction", self.fraction, "fraction of a head's dimensions to rotate, from the first", Limits{1e-6, 1});
    field("rotary_dim", self.rotary_dim, "number of dimensions to rotate; default floor(fraction · head_dim)");
    field("pairing", self.pairing, "half_split: x_i with x_{i+d/2}; interleaved: x_{2i} with x_{2i+1}");
    field("scaling", self.scaling, "scaling for sequences longer than in training");
  }
  bool operator==(const Rope&) const = default;
};

/// Precision of ALiBi's biases. bf16 reproduces models that were trained with rounded biases.
enum class BiasRounding : uint8_t { f32, bf16 };
constexpr auto names_of(BiasRounding) { return std::array<std::string_view, 2>{"f32", "bf16"}; }

struct Alibi {
  static constexpr std::string_view kKind = "alibi";
  static constexpr std::string_view kDoc = "adds -slope_h · distance to the scores (arXiv:2108.12409)";
  double max_bias = 8.0;
  double slope_scale = 1.0;
  BiasRounding rounding = BiasRounding::f32;
  static void visit_fields(auto& self, auto&& field) {
    field("max_bias", self.max_bias, "slopes are 2^{-max_bias·h/n}");
    field("slope_scale", self.slope_scale, "factor on every slope, for models that scale scores after adding the bias");
    field("rounding", self.rounding,
          "f32: slope · distance without rounding; bf16: slopes, absolute key positions and slope · position "
          "are each rounded to bf16, before slope_scale");
  }
  bool operator==(const Alibi&) const = default;
};

struct T5Bias {
  static constexpr std::string_view kKind = "t5";
  static constexpr std::string_view kDoc =
      "a learned bias per head and log-spaced bucket of distance (arXiv:1910.10683)";
  int64_t buckets = 32;
  int64_t max_distance = 128;
  bool bidirectional = false;
  bool shared = true;
  static void visit_fields(auto& self, auto&& field) {
    field("buckets", self.buckets, "rows of the table");
    field("max_distance", self.max_distance, "larger distances share the last bucket");
    field("bidirectional", self.bidirectional, "reserves half of the buckets for keys after the query");
    field("shared", self.shared, "one table for all layers, else one per layer");
  }
  bool operator==(const T5Bias&) const = default;
};

struct TransformerXl {
  static constexpr std::string_view kKind = "transformer_xl";
  static constexpr std::string_view kDoc = "relative attention with cached segments (arXiv:1901.02860)";
  std::optional<int64_t> memory;
  bool shared_bias = true;
  static void visit_fields(auto& self, auto&& field) {
    field("memory", self.memory, "number of cached positions from earlier segments; default context");
    field("shared_bias", self.shared_bias, "one pair of bias vectors u, v for all layers, else one per layer");
  }
  bool operator==(const TransformerXl&) const = default;
};

/// Where the model's position information comes from.
using Position = std::variant<NoPosition, LearnedPosition, SinusoidalPosition, Rope, Alibi, T5Bias, TransformerXl>;
/// The kinds of position that act inside a layer.
using LayerPosition = std::variant<NoPosition, Rope, Alibi, T5Bias, TransformerXl>;

}  // namespace lamina::arch
