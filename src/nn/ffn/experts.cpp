#include "lamina/nn/ffn/experts.h"

#include "lamina/nn/ffn/gated_ffn.h"
#include "lamina/nn/recompute.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/moe/grouped_linear.h"

namespace lamina::nn {
namespace {

int64_t width_of(const arch::ExpertFfn& expert) {
  return std::visit([](const auto& e) { return *e.d_ff; }, expert);
}
bool has_bias(const arch::ExpertFfn& expert) {
  return std::visit([](const auto& e) { return e.bias; }, expert);
}

}  // namespace

Experts::Experts(int64_t d_model, const arch::Moe& spec, const ParameterFactory& make)
    : spec_(spec.expert),
      held_(make.held_experts("down.weight", spec.experts)),
      down_(make.residual("down.weight", {held_, d_model, width_of(spec.expert)}),
            has_bias(spec.expert) && make.holds("down.bias") ? make.constant({held_, d_model}, 0.0) : Tensor()) {
  const int64_t d_ff = width_of(spec_);
  std::vector<std::string> parts{"up"};
  if (std::holds_alternative<arch::GatedFfn>(spec_)) parts.insert(parts.begin(), "gate");
  const auto packed = static_cast<int64_t>(parts.size()) * d_ff;
  in_weight_.axis = in_bias_.axis = 1;
  in_weight_.whole = make.empty({held_, packed, d_model});
  for (const std::string& part : parts) in_weight_.layout.push_back({part + ".weight", d_ff});
  for (size_t i = 0; i < parts.size(); ++i) {
    make.fill_normal(in_weight_.layout[i].name, in_weight_.part(i), make.options().deviation);
  }
  add_packed_parameter("in.weight", in_weight_);
  if (has_bias(spec_)) {
    in_bias_.whole = make.constant({held_, packed}, 0.0);
    for (const std::string& part : parts) in_bias_.layout.push_back({part + ".bias", d_ff});
    add_packed_parameter("in.bias", in_bias_);
  }
  add_child("down", down_);
}

Tensor Experts::inner(const Tensor& rows, const Tensor& offsets) const {
  if (in_weight_.is_packed()) return ops::grouped_linear(rows, in_weight_.whole, offsets, in_bias_.whole);
  std::vector<Tensor> parts;
  for (size_t i = 0; i < in_weight_.parts.size(); ++i) {
    const Tensor bias = in_bias_.parts.empty() ? Tensor() : in_bias_.parts[i];
    parts.push_back(ops::grouped_linear(rows, in_weight_.parts[i], offsets, bias));
  }
  return ops::concat(parts, -1);
}

Tensor Experts::activated(const Tensor& inner) const {
  if (const auto* gated = std::get_if<arch::GatedFfn>(&spec_)) {
    return scaled(ops::gated_activation(inner, gated->gate, gate_options(*gated)), gated->gate_scale);
  }
  return ops::activation(inner, std::get<arch::PlainFfn>(spec_).activation);
}

Tensor Experts::forward(const Tensor& rows, const Tensor& offsets, Tape* recompute) const {
  const Tensor projected = inner(rows, offsets);
  const Tensor x = activated(projected);
  const Tensor y = ops::grouped_linear(x, down_.weight(), offsets, down_.bias());
  if (!x.shares_memory_with(projected)) {
    recompute_in_backward(recompute, x, [this, kept = projected.detach()] { return activated(kept); });
  }
  const auto* gated = std::get_if<arch::GatedFfn>(&spec_);
  return gated == nullptr ? y : scaled(y, gated->out_scale);
}

}  // namespace lamina::nn
