#pragma once

#include "lamina/arch/fields.h"

namespace lamina::arch {

/// Lightning attention: linear attention whose weights decay with the distance, so that a state of constant size
/// replaces cached keys and values. With q, k, v = silu(projections of x), for each head:
///   S_t = exp(-rate) · S_{t-1} + k_t ⊗ v_t      y_t = q_t S_t      out(norm(y) · sigmoid(gate(x)))
struct Lightning {
  static constexpr std::string_view kKind = "lightning";
  static constexpr std::string_view kDoc =
      "linear attention with a fixed decay per head, a norm and a gate of its output (arXiv:2401.04658)";
  int64_t n_heads = 0;
  std::optional<int64_t> head_dim;
  bool slower_with_depth = true;
  double norm_eps = 1e-6;
  int64_t chunk = 256;
  static void visit_fields(auto& self, auto&& field) {
    field("n_heads", self.n_heads, "heads; head h of n decays at the rate 2^(-8h/n), counted from 1; required");
    field("head_dim", self.head_dim, "width of a query, key or value head; default d_model / n_heads");
    field("slower_with_depth", self.slower_with_depth,
          "layer l of L, counted from 0, multiplies the rates by 1 - l / (L - 1 + 1e-5) + 1e-5");
    field("norm_eps", self.norm_eps, "eps of the RMS norm over all heads before the gate");
    field("chunk", self.chunk, "positions per chunk of the chunked scan");
  }
  bool operator==(const Lightning&) const = default;
};

/// The time mixing of RWKV-4. Each projection reads x_t and x_{t−1}, mixed per channel (token shift):
///   x^k_t = mix_k · x_t + (1 − mix_k) · x_{t−1}, likewise x^v and x^r      out(sigmoid(r(x^r)) · wkv(k(x^k), v(x^v)))
struct Wkv {
  static constexpr std::string_view kKind = "wkv";
  static constexpr std::string_view kDoc =
      "token shift, then an average of values weighted by exp(key) with a decay per channel, gated (RWKV-4, "
      "arXiv:2305.13048)";
  std::optional<int64_t> width;
  static void visit_fields(auto& self, auto&& field) {
    field("width", self.width, "channels of keys, values and gates; default d_model");
  }
  bool operator==(const Wkv&) const = default;
};

/// The channel mixing of RWKV-4: a feed-forward that also reads the previous position, and is therefore a mixer.
///   sigmoid(r(x^r)) · v(relu(k(x^k))²)      with x^k and x^r as in Wkv
struct ChannelMix {
  static constexpr std::string_view kKind = "channel_mix";
  static constexpr std::string_view kDoc =
      "token shift, then a feed-forward with squared ReLU and a sigmoid gate (RWKV-4, arXiv:2305.13048)";
  std::optional<int64_t> d_ff;
  static void visit_fields(auto& self, auto&& field) { field("d_ff", self.d_ff, "inner width; default 4 · d_model"); }
  bool operator==(const ChannelMix&) const = default;
};

/// Gated DeltaNet: linear attention whose state decays. A new value replaces the value stored for its key, instead of
/// being added (see ops::gated_delta). q, k, v = silu(short convolution of projections of x); q and k have length 1.
/// Per head, the decay is exp(−exp(a_log) softplus(a(x) + dt_bias)), and the update strength is sigmoid(b(x)):
///   out(norm(y) · silu(z(x)))      norm over each head
struct GatedDelta {
  static constexpr std::string_view kKind = "gated_delta";
  static constexpr std::string_view kDoc =
      "gated delta rule: linear attention that forgets and overwrites, with a short convolution and a gated norm "
      "(arXiv:2412.06464)";
  int64_t n_heads = 0;
  std::optional<int64_t> n_key_heads;
  int64_t key_dim = 128;
  int64_t value_dim = 128;
  int64_t conv = 4;
  double norm_eps = 1e-6;
  static void visit_fields(auto& self, auto&& field) {
    field("n_heads", self.n_heads, "value heads; required");
    field("n_key_heads", self.n_key_heads, "query and key heads, a divisor of n_heads; default n_heads");
    field("key_dim", self.key_dim, "width of a query or key head");
    field("value_dim", self.value_dim, "width of a value head");
    field("conv", self.conv, "taps of the causal convolution");
    field("norm_eps", self.norm_eps, "eps of the gated RMS norm before the output projection");
  }
  bool operator==(const GatedDelta&) const = default;
};

}  // namespace lamina::arch
