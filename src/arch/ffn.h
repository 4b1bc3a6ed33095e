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

/// Activation with two learned numbers a_p, a_n per layer (arXiv:2411.13010). With p = softplus(a_p) and
/// n = beta + softplus(a_n):  x > 0: p · x² + beta · x;  otherwise n · (expm1(min(x, eps)) − x) + beta · x.
struct Xielu {
  double beta = 0.5;
  double eps = -1e-6;
  static void visit_fields(auto& self, auto&& field) {
    field("beta", self.beta, "slope at 0; also the least n");
    field("eps", self.eps, "upper limit of the exponent", Limits{-1, 0});
  }
  bool operator==(const Xielu&) const = default;
};

struct PlainFfn {
  static constexpr std::string_view kKind = "plain";
  static constexpr std::string_view kDoc = "down(act(up(x)))";
  std::optional<int64_t> d_ff;
  Activation activation = Activation::gelu;
  std::optional<Xielu> xielu;
  bool bias = false;
  static void visit_fields(auto& self, auto&& field) {
    field("d_ff", self.d_ff, "inner width; default 4 · d_model");
    field("activation", self.activation, "activation between the two projections");
    field("xielu", self.xielu, "learned activation instead: xIELU (arXiv:2411.13010); default none");
    field("bias", self.bias, "biases of both projections");
  }
  bool operator==(const PlainFfn&) const = default;
};

/// How the default width of a gated unit becomes a multiple of GatedFfn::multiple_of.
enum class Rounding : uint8_t { up, down };
constexpr auto names_of(Rounding) { return std::array<std::string_view, 2>{"up", "down"}; }

struct GatedFfn {
  static constexpr std::string_view kKind = "gated";
  static constexpr std::string_view kDoc = "down(act(gate(x)) · (up(x) + up_offset))";
  std::optional<int64_t> d_ff;
  int64_t multiple_of = 8;
  Rounding rounding = Rounding::up;
  Gate gate = Gate::swiglu;
  bool bias = false;
  double alpha = 1.0;
  std::optional<double> limit;
  double up_offset = 0.0;
  double gate_scale = 1.0;
  double out_scale = 1.0;
  static void visit_fields(auto& self, auto&& field) {
    field("d_ff", self.d_ff, "inner width; default 8/3 · d_model, rounded to a multiple of multiple_of");
    field("multiple_of", self.multiple_of, "divides the default d_ff");
    field("rounding", self.rounding, "of the default d_ff; down with multiple_of 1: int(2 · 4 · d_model / 3)");
    field("gate", self.gate, "activation of the gate");
    field("bias", self.bias, "biases of the three projections");
    field("alpha", self.alpha, "uses act(alpha·g)/alpha as the gate's function");
    field("limit", self.limit, "clamps the gate to at most limit, and up to [-limit, limit]; default none");
    field("up_offset", self.up_offset, "added to up", kAnyNumber);
    field("gate_scale", self.gate_scale, "factor on the gate, after its limit and before its activation");
    field("out_scale", self.out_scale, "factor on the output");
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
  bool weigh_inputs = false;
  double near = 0.02;
  bool router_bias = false;
  bool selection_bias = false;
  int64_t groups = 1;
  int64_t top_groups = 1;
  int64_t group_best = 2;
  int64_t shared_experts = 0;
  std::optional<int64_t> shared_d_ff;
  bool shared_gate = false;
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
    field("weigh_inputs", self.weigh_inputs, "weights multiply the input of an expert instead of its output");
    field("near", self.near, "score softmax_of_near: largest relative distance from the best", kNotNegative);
    field("router_bias", self.router_bias, "bias of the router's projection");
    field("selection_bias", self.selection_bias, "a bias per expert, added to choose experts only; no gradient");
    field("groups", self.groups, "number of groups of consecutive experts");
    field("top_groups", self.top_groups, "number of best groups that take part");
    field("group_best", self.group_best, "a group's score is the sum of this many of its highest scores");
    field("shared_experts", self.shared_experts, "experts that every token uses, merged into one feed-forward", kCount);
    field("shared_d_ff", self.shared_d_ff,
          "total width of the shared experts; default shared_experts · the expert's d_ff");
    field("shared_gate", self.shared_gate, "the shared experts' output is multiplied by sigmoid(w·x), one w per layer");
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
