#pragma once

#include "lamina/arch/norm.h"

namespace lamina::arch {

struct Mamba {
  static constexpr std::string_view kKind = "mamba";
  static constexpr std::string_view kDoc = "selective state space with a gated input (arXiv:2312.00752)";
  int64_t state = 16;
  int64_t conv = 4;
  double expand = 2.0;
  std::optional<int64_t> d_inner;
  std::optional<int64_t> dt_rank;
  bool bias = false;
  bool conv_bias = true;
  std::optional<Norm> norm;
  double dt_min = 0.001;
  double dt_max = 0.1;
  static void visit_fields(auto& self, auto&& field) {
    field("state", self.state, "state size per channel");
    field("conv", self.conv, "taps of the causal convolution");
    field("expand", self.expand, "d_inner / d_model");
    field("d_inner", self.d_inner, "channels; default expand · d_model");
    field("dt_rank", self.dt_rank, "rank of the step size's projection; default ceil(d_model / 16)");
    field("bias", self.bias, "biases of the input and output projections");
    field("conv_bias", self.conv_bias, "bias of the convolution");
    field("norm", self.norm, "norm of B, C and the input of the step size's projection; default none");
    field("dt_min", self.dt_min, "smallest step size at initialisation");
    field("dt_max", self.dt_max, "largest step size at initialisation");
  }
  bool operator==(const Mamba&) const = default;
};

/// Order of norm and gate z before the output projection of a state space layer with output y:
///   after_gate   norm(y · silu(z))
///   before_gate  norm(y) · silu(z)
///   none         y · silu(z)
enum class GatedNorm : uint8_t { after_gate, before_gate, none };
constexpr auto names_of(GatedNorm) { return std::array<std::string_view, 3>{"after_gate", "before_gate", "none"}; }

struct Mamba2 {
  static constexpr std::string_view kKind = "mamba2";
  static constexpr std::string_view kDoc = "state space duality: one decay per head (arXiv:2405.21060)";
  int64_t state = 128;
  int64_t conv = 4;
  double expand = 2.0;
  std::optional<int64_t> d_inner;
  int64_t head_dim = 64;
  int64_t groups = 1;
  int64_t chunk = 256;
  bool bias = false;
  bool conv_bias = true;
  std::vector<double> in_scales;
  GatedNorm norm = GatedNorm::after_gate;
  double norm_eps = 1e-5;
  int64_t norm_groups = 1;
  double dt_min = 0.001;
  double dt_max = 0.1;
  double dt_low = 0.0;
  std::optional<double> dt_high;
  static void visit_fields(auto& self, auto&& field) {
    field("state", self.state, "state size per channel");
    field("conv", self.conv, "taps of the causal convolution");
    field("expand", self.expand, "d_inner / d_model");
    field("d_inner", self.d_inner, "channels; default expand · d_model");
    field("head_dim", self.head_dim, "channels that share one decay; d_inner / head_dim heads");
    field("groups", self.groups, "groups of heads that share B and C");
    field("chunk", self.chunk, "positions per chunk of the chunked scan");
    field("bias", self.bias, "biases of the input and output projections");
    field("conv_bias", self.conv_bias, "bias of the convolution");
    field("in_scales", self.in_scales, "factors on the projected z, x, B, C and step sizes; default none");
    field("norm", self.norm,
          "RMS norm of the scan's output y with gate z: after_gate norm(y·silu(z)), before_gate norm(y)·silu(z), none "
          "y·silu(z)");
    field("norm_eps", self.norm_eps, "eps of the gated RMS norm before the output projection");
    field("norm_groups", self.norm_groups, "groups of channels that share one RMS");
    field("dt_min", self.dt_min, "smallest step size at initialisation");
    field("dt_max", self.dt_max, "largest step size at initialisation");
    field("dt_low", self.dt_low, "lower bound of step sizes", kNotNegative);
    field("dt_high", self.dt_high, "upper bound of step sizes; default none");
  }
  bool operator==(const Mamba2&) const = default;
};

struct S4d {
  static constexpr std::string_view kKind = "s4d";
  static constexpr std::string_view kDoc =
      "diagonal state space with fixed dynamics and a GLU output (arXiv:2206.11893)";
  int64_t state = 64;
  bool bias = true;
  double dt_min = 0.001;
  double dt_max = 0.1;
  static void visit_fields(auto& self, auto&& field) {
    field("state", self.state, "state size per channel: half as many complex pairs");
    field("bias", self.bias, "bias of the output projection to 2·d_model, which a GLU halves");
    field("dt_min", self.dt_min, "smallest step size at initialisation");
    field("dt_max", self.dt_max, "largest step size at initialisation");
  }
  bool operator==(const S4d&) const = default;
};

struct ShortConv {
  static constexpr std::string_view kKind = "short_conv";
  static constexpr std::string_view kDoc =
      "gated short convolution: out(c · conv(b · x)), with b, c and x projected from the input (arXiv:2511.23404)";
  int64_t conv = 3;
  bool bias = false;
  static void visit_fields(auto& self, auto&& field) {
    field("conv", self.conv, "taps of the causal convolution");
    field("bias", self.bias, "biases of both projections and of the convolution");
  }
  bool operator==(const ShortConv&) const = default;
};

struct RgLru {
  static constexpr std::string_view kKind = "rg_lru";
  static constexpr std::string_view kDoc =
      "real-gated linear recurrent unit: out(gelu(y) · lru(conv(x))), with x and y projected from the input "
      "(arXiv:2402.19427)";
  std::optional<int64_t> width;
  int64_t blocks = 1;
  int64_t conv = 4;
  static void visit_fields(auto& self, auto&& field) {
    field("width", self.width, "channels of the recurrence; default d_model");
    field("blocks", self.blocks, "diagonal blocks of the projections of both gates");
    field("conv", self.conv, "taps of the causal convolution");
  }
  bool operator==(const RgLru&) const = default;
};

}  // namespace lamina::arch
