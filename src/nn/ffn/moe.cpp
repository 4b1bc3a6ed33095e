#include "lamina/nn/ffn/moe.h"

#include "lamina/nn/ffn/gated_ffn.h"
#include "lamina/nn/ffn/plain_ffn.h"
#include "lamina/ops/activation/activation.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/reduce.h"
#include "lamina/ops/moe/dispatch.h"
#include "lamina/ops/moe/route.h"
#include "lamina/ops/moe/router_loss.h"

namespace lamina::nn {
namespace {

/// The shared experts, merged into one feed-forward of their total width; null if there are none.
std::unique_ptr<Ffn> make_shared_experts(int64_t d_model, const arch::Moe& spec, const ParameterFactory& make) {
  if (spec.shared_experts == 0) return nullptr;
  arch::ExpertFfn joint = spec.expert;
  std::visit([&](auto& expert) { expert.d_ff = *spec.shared_d_ff; }, joint);
  if (const auto* gated = std::get_if<arch::GatedFfn>(&joint)) return std::make_unique<GatedFfn>(d_model, *gated, make);
  return std::make_unique<PlainFfn>(d_model, std::get<arch::PlainFfn>(joint), make);
}

ops::RouteOptions route_options(const arch::Moe& spec) {
  return {.k = spec.top_k,
          .score = spec.score,
          .normalize = spec.renormalise,
          .scale = spec.weight_scale,
          .groups = spec.groups,
          .chosen_groups = spec.top_groups,
          .group_best = spec.group_best,
          .near = spec.near};
}

}  // namespace

MoeFfn::MoeFfn(int64_t d_model, const arch::Moe& spec, const ParameterFactory& make)
    : spec_(spec),
      router_(spec.experts, d_model, spec.router_bias, make.at("router")),
      experts_(d_model, spec, make.at("experts")),
      shared_(make_shared_experts(d_model, spec, make.at("shared"))),
      chosen_(Tensor::zeros({spec.experts}, DType::i64, make.device())),
      dropped_(Tensor::zeros({1}, DType::i64, make.device())) {
  add_child("router", router_);
  router_.keep_weight();  // stays unquantized: rounding could route tokens to other experts
  if (spec.selection_bias) {
    selection_bias_ = make.constant({spec.experts}, 0.0);
    add_buffer("selection_bias", selection_bias_, Persistence::persistent);
  }
  add_child("experts", experts_);
  if (shared_) add_child("shared", *shared_);
  if (spec.shared_gate) {
    shared_gate_.emplace(1, d_model, false, make.at("shared_gate"));
    add_child("shared_gate", *shared_gate_);
    shared_gate_->keep_weight();
  }
  add_buffer("chosen", chosen_, Persistence::non_persistent);
  add_buffer("dropped", dropped_, Persistence::non_persistent);
}

void MoeFfn::add_losses(const Tensor& logits, const ops::Routing& routing, ForwardContext& pass) const {
  if (spec_.balance_loss > 0.0) {
    const Tensor loss = pass.balance_loss(logits, routing.indices, routing.counts);
    pass.losses.push_back(ops::scale(loss, spec_.balance_loss));
  }
  if (spec_.z_loss > 0.0) pass.losses.push_back(ops::scale(ops::router_z_loss(logits), spec_.z_loss));
}

Tensor MoeFfn::forward(const Tensor& x_in, ForwardContext& pass) {
  const int64_t tokens = x_in.dim(0) * x_in.dim(1);
  const Tensor x = x_in.reshape({tokens, x_in.dim(2)});
  const Tensor logits = router_.forward(x.dtype() == DType::f64 ? x : x.to(DType::f32));
  const ops::Routing routing = ops::route_top_k(logits, route_options(spec_), selection_bias_);
  add_losses(logits, routing, pass);
  chosen_ = routing.counts;
  const std::vector<int64_t> starts = limited_rows(x_in, pass);
  Tensor y;
  if (starts.empty()) {
    const bool limited = pass.training && spec_.capacity_factor;
    y = run_experts(x, routing,
                    limited ? ops::expert_capacity(tokens, spec_.top_k, spec_.experts, *spec_.capacity_factor) : 0,
                    pass);
  } else {
    y = run_rows(x, routing, starts, pass);
  }
  y = y.reshape(x_in.shape());
  if (!shared_) return y;
  Tensor shared = shared_->forward(x_in, pass);
  if (shared_gate_) {
    const Tensor gate = shared_gate_->forward(x.dtype() == DType::f64 ? x_in : x_in.to(DType::f32));
    shared = ops::mul(shared, ops::activation(gate, ops::Activation::sigmoid).to(shared.dtype()));
  }
  return ops::add(y, shared);
}

Tensor MoeFfn::run_sorted(const Tensor& rows, const Tensor& offsets, const ForwardContext& pass) {
  return pass.run_experts(rows, offsets, [&](const Tensor& x, const Tensor& starts) {
    return experts_.forward(x, starts, pass.recompute);
  });
  // Each choice (token, expert) is dispatched as a token of its own, so that its input can be multiplied by its weight.
}

Tensor MoeFfn::run_weighed(const Tensor& x, const ops::Routing& routing, int64_t capacity, const ForwardContext& pass) {
  const int64_t tokens = x.dim(0);
  const int64_t k = spec_.top_k;
  const Tensor weights = routing.weights.reshape({tokens, k, 1}).to(x.dtype());
  const Tensor inputs = ops::mul(x.reshape({tokens, 1, x.dim(1)}), weights).reshape({tokens * k, x.dim(1)});
  const ops::DispatchPlan plan = ops::plan_dispatch(routing.indices.reshape({tokens * k, 1}), spec_.experts, capacity);
  dropped_ = plan.dropped;
  const Tensor rows = run_sorted(ops::dispatch(inputs, plan), plan.offsets, pass);
  const Tensor ones = Tensor::full({tokens * k, 1}, 1.0, rows.dtype(), rows.device());
  const Tensor outputs = ops::combine(rows, ones, plan);
  return k == 1 ? outputs : ops::sum(outputs.reshape({tokens, k, x.dim(1)}), 1);
}

Tensor MoeFfn::run_experts(const Tensor& x, const ops::Routing& routing, int64_t capacity, const ForwardContext& pass) {
  if (spec_.weigh_inputs) return run_weighed(x, routing, capacity, pass);
  const ops::DispatchPlan plan = ops::plan_dispatch(routing.indices, spec_.experts, capacity);
  dropped_ = plan.dropped;
  const Tensor rows = run_sorted(ops::dispatch(x, plan), plan.offsets, pass);
  return ops::combine(rows, routing.weights, plan);
}

/// Sequences of at most `capacity` tokens cannot overflow an expert, because a token chooses an expert at most once.
std::vector<int64_t> MoeFfn::limited_rows(const Tensor& x, const ForwardContext& pass) const {
  if (!spec_.capacity || pass.rows != nullptr) return {};
  std::vector<int64_t> starts = pass.row_starts;
  if (starts.empty()) {
    for (int64_t row = 0; row <= x.dim(0); ++row) starts.push_back(row * x.dim(1));
  }
  for (size_t row = 0; row + 1 < starts.size(); ++row) {
    if (starts[row + 1] - starts[row] > *spec_.capacity) return starts;
  }
  return {};
}

Tensor MoeFfn::run_rows(const Tensor& x, const ops::Routing& routing, const std::vector<int64_t>& starts,
                        const ForwardContext& pass) {
  std::vector<Tensor> outputs;
  Tensor dropped = Tensor::zeros({1}, DType::f64, x.device());
  for (size_t row = 0; row + 1 < starts.size(); ++row) {
    const int64_t length = starts[row + 1] - starts[row];
    const auto part = [&](const Tensor& t) { return t.slice(0, starts[row], length); };
    ops::Routing own = routing;
    own.indices = part(routing.indices).contiguous();
    own.weights = part(routing.weights).contiguous();
    outputs.push_back(run_experts(part(x).contiguous(), own, *spec_.capacity, pass));
    dropped = ops::add(dropped, dropped_.to(DType::f64));
  }
  dropped_ = dropped.to(DType::i64);
  return ops::concat(outputs, 0);
}

}  // namespace lamina::nn
