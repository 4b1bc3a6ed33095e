#pragma once

#include "lamina/arch/fields.h"
#include "lamina/base/function_kinds.h"

namespace lamina::arch {

using lamina::Activation;
using lamina::Gate;
using lamina::RouterScore;

struct NoFfn {
  static constexpr std::string_view kKind = "none";
  static constexpr std::string_view kDoc = "no feed-forward";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const NoFfn&) const = default;
};

struct PlainFfn {
  static constexpr std::string_view kKind = "plain";
  static constexpr std::string_view kDoc = "down(act(up(x)))";
  std::optional<int64_t> d_ff;
  Activation activation = Activation::gelu;
  bool bias = false;
  static void visit_fields(auto& self, auto&& field) {
    field("d_ff", self.d_ff, "inner width; default 4 · d_model");
    field("activation", self.activation, "activation between the two projections");
    field("bias", self.bias, "biases of both projections");
  }
  bool operator==(const PlainFfn&) const = default;
};

struct GatedFfn {
  static constexpr std::string_view kKind = "gated";
  static constexpr std::string_view kDoc = "down(act(gate(x)) · (up(x) + up_offset))";
  std::optional<int64_t> d_ff;
  int64_t multiple_of = 8;
  Gate gate = Gate::swiglu;
  bool bias = false;
  double alpha = 1.0;
  std::optional<double> limit;
  double up_offset = 0.0;
  static void visit_fields(auto& self, auto&& field) {
    field("d_ff", self.d_ff, "inner width; default 8/3 · d_model, rounded up to a multiple of multiple_of");
    field("multiple_of", self.multiple_of, "rounding of the default d_ff");
    field("gate", self.gate, "activation of the gate");
    field("bias", self.bias, "biases of the three projections");
    field("alpha", self.alpha, "uses act(alpha·g)/alpha as the gate's function");
    field("limit", self.limit, "clamps the gate to at most limit, and up to [-limit, limit]; default none");
    field("up_offset", self.up_offset, "added to up", kAnyNumber);
  }
  bool operator==(const GatedFfn&) const = default;
};

using ExpertFfn = std::variant<GatedFfn, PlainFfn>;  ///< Feed-forward of one expert.

struct Moe {
  static constexpr std::string_view kKind = "moe";
  static constexpr std::string_view kDoc =
      "mixture of experts: a router sends each token to its top_k experts (arXiv:1701.06538)";
  int64_t experts = 8;
  int64_t top_k = 2;
  ExpertFfn expert;
  RouterScore score = RouterScore::softmax;
  bool renormalise = false;
  double weight_scale = 1.0;
  bool router_bias = false;
  bool selection_bias = false;
  int64_t groups = 1;
  int64_t top_groups = 1;
  int64_t group_best = 2;
  int64_t shared_experts = 0;
  std::optional<int64_t> shared_d_ff;
  std::optional<double> capacity_factor;
  std::optional<int64_t> capacity;
  double balance_loss = 0.0;
  double z_loss = 0.0;
  static void visit_fields(auto& self, auto&& field) {
    field("experts", self.experts, "routed experts");
    field("top_k", self.top_k, "experts per token");
    field("expert", self.expert, "feed-forward of one expert");
    field("score", self.score, "how the router's logits become weights");
    field("renormalise", self.renormalise, "divide the top_k weights by their sum");
    field("weight_scale", self.weight_scale, "factor on the weights, after renormalising");
    field("router_bias", self.router_bias, "bias of the router's projection");
    field("selection_bias", self.selection_bias, "a bias per expert, added to choose experts only; no gradient");
    field("groups", self.groups, "number of groups of consecutive experts");
    field("top_groups", self.top_groups, "number of best groups that take part");
    field("group_best", self.group_best, "a group's score is the sum of this many of its highest scores");
    field("shared_experts", self.shared_experts, "experts that every token uses, merged into one feed-forward", kCount);
    field("shared_d_ff", self.shared_d_ff,
          "total width of the shared experts; default shared_experts · the expert's d_ff");
    field("capacity_factor", self.capacity_factor,
          "capacity of an expert relative to a balanced load, in training; default no limit");
    field("capacity", self.capacity,
          "most tokens of a sequence that an expert takes, always; the others skip the experts; default no limit");
    field("balance_loss", self.balance_loss, "coefficient of the load-balancing loss", kNotNegative);
    field("z_loss", self.z_loss, "coefficient of the router's z-loss", kNotNegative);
  }
  bool operator==(const Moe&) const = default;
};

using Ffn = std::variant<GatedFfn, PlainFfn, Moe, NoFfn>;  ///< A layer applied to each position separately.

}  // namespace lamina::arch
