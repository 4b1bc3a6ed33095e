#pragma once

#include "lamina/arch/attention.h"
#include "lamina/arch/ssm.h"

namespace lamina::arch {

/// Two mixers that read the same input in parallel. Their weights keep their names, which do not collide.
struct AttentionMamba2 {
  static constexpr std::string_view kKind = "attention_mamba2";
  static constexpr std::string_view kDoc =
      "attention and Mamba-2 side by side on the same input; their outputs are added (arXiv:2411.13676)";
  Attention attention;
  Mamba2 mamba2;
  double attention_in = 1.0;
  double attention_out = 1.0;
  double mamba2_in = 1.0;
  double mamba2_out = 1.0;
  static void visit_fields(auto& self, auto&& field) {
    field("attention", self.attention, "the attention, with the keys of mixer.kind=attention");
    field("mamba2", self.mamba2, "the state space, with the keys of mixer.kind=mamba2");
    field("attention_in", self.attention_in, "factor on the input of the attention");
    field("attention_out", self.attention_out, "factor on the output of the attention");
    field("mamba2_in", self.mamba2_in, "factor on the input of the state space");
    field("mamba2_out", self.mamba2_out, "factor on the output of the state space");
  }
  bool operator==(const AttentionMamba2&) const = default;
};

}  // namespace lamina::arch
