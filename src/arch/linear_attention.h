#pragma once

#include "lamina/arch/fields.h"

namespace lamina::arch {

/// Lightning attention: softmax-free attention whose scores decay with the distance, so that a state of constant size
/// replaces the cached keys and values. With q, k, v = silu(projections of x), for each head
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

}  // namespace lamina::arch
