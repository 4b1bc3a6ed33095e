#include "lamina/nn/ffn/moe.h"

#include "lamina/nn/ffn/gated_ffn.h"
#include "lamina/nn/ffn/plain_ffn.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
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
          .group_best = spec.group_best};
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
  router_.keep_weight();  // stays unquantized: rounding it would route tokens to other experts
  if (spec.selection_bias) {
    selection_bias_ = make.constant({spec.experts}, 0.0);
    add_buffer("selection_bias", selection_bias_, Persistence::persistent);
  }
  add_child("experts", experts_);
  if (shared_) add_child("shared", *shared_);
  add_buffer("chosen", chosen_, Persistence::non_persistent);
  add_buffer("dropped", dropped_, Persistence::non_persistent);
}

void MoeFfn::add_losses(const Tensor& logits, const Tensor& indices, ForwardContext& pass) const {
  if (spec_.balance_loss > 0.0) {
    pass.losses.push_back(ops::scale(ops::balance_loss(logits, indices), spec_.balance_loss));
  }
  if (spec_.z_loss > 0.0) pass.losses.push_back(ops::scale(ops::router_z_loss(logits), spec_.z_loss));
}

Tensor MoeFfn::forward(const Tensor& x_in, ForwardContext& pass) {
  const int64_t tokens = x_in.dim(0) * x_in.dim(1);
  const Tensor x = x_in.reshape({tokens, x_in.dim(2)});
  const Tensor logits = router_.forward(x.dtype() == DType::f64 ? x : x.to(DType::f32));
  const ops::Routing routing = ops::route_top_k(logits, route_options(spec_), selection_bias_);
  add_losses(logits, routing.indices, pass);
  chosen_ = routing.counts;
  const std::vector<int64_t> starts = limited_rows(x_in, pass);
  Tensor y;
  if (starts.empty()) {
    const bool limited = pass.training && spec_.capacity_factor;
    y = run_experts(x, routing,
                    limited ? ops::expert_capacity(tokens, spec_.top_k, spec_.experts, *spec_.capacity_factor) : 0);
  } else {
    y = run_rows(x, routing, starts);
  }
  y = y.reshape(x_in.shape());
  return shared_ ? ops::add(y, shared_->forward(x_in, pass)) : y;
}

Tensor MoeFfn::run_experts(const Tensor& x, const ops::Routing& routing, int64_t capacity) {
  const ops::DispatchPlan plan = ops::plan_dispatch(routing.indices, spec_.experts, capacity);
  dropped_ = plan.dropped;
  const Tensor rows = experts_.forward(ops::dispatch(x, plan), plan.offsets);
  return ops::combine(rows, routing.weights, plan);
}

/// A row of at most `capacity` tokens cannot overflow an expert, because a token chooses an expert once.
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

Tensor MoeFfn::run_rows(const Tensor& x, const ops::Routing& routing, const std::vector<int64_t>& starts) {
  std::vector<Tensor> outputs;
  Tensor dropped = Tensor::zeros({1}, DType::f64, x.device());
  for (size_t row = 0; row + 1 < starts.size(); ++row) {
    const int64_t length = starts[row + 1] - starts[row];
    const auto part = [&](const Tensor& t) { return t.slice(0, starts[row], length); };
    ops::Routing own = routing;
    own.indices = part(routing.indices).contiguous();
    own.weights = part(routing.weights).contiguous();
    outputs.push_back(run_experts(part(x).contiguous(), own, *spec_.capacity));
    dropped = ops::add(dropped, dropped_.to(DType::f64));
  }
  dropped_ = dropped.to(DType::i64);
  return ops::concat(outputs, 0);
}

}  // namespace lamina::nn
