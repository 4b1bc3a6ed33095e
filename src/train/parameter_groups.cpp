#include "lamina/train/parameter_groups.h"

#include <algorithm>

namespace lamina::train {
namespace {

constexpr size_t kGroups = 3;

/// Whether a rank-2 parameter is not a linear map: a_log, conv.weight, sinks, relative positions.
bool is_table(const std::string& name) {
  return !name.ends_with(".weight") || name.ends_with("conv.weight") || name.ends_with("position.weight");
}

struct Rates {
  double matrix_lr;
  double other_lr;
  double matrix_decay;
  double other_decay;
};

Rates rates_of(const OptimizerChoice& choice) {
  if (const auto* muon = std::get_if<MuonChoice>(&choice)) {
    return {muon->lr, muon->others.lr, muon->weight_decay, muon->others.weight_decay};
  }
  return std::visit([](const auto& one) { return Rates{one.lr, one.lr, one.weight_decay, one.weight_decay}; }, choice);
}

ops::AdamWOptions options_of(const AdamWChoice& choice) { return {choice.beta1, choice.beta2, choice.eps}; }

std::unique_ptr<Optimizer> make(const AdamWChoice& choice, std::vector<ParamGroup> groups) {
  return std::make_unique<AdamW>(std::move(groups), options_of(choice));
}

std::unique_ptr<Optimizer> make(const SgdChoice& choice, std::vector<ParamGroup> groups) {
  return std::make_unique<Sgd>(std::move(groups), ops::SgdOptions{choice.momentum, choice.nesterov});
}

std::unique_ptr<Optimizer> make(const MuonChoice& choice, std::vector<ParamGroup> groups) {
  const ops::MuonOptions options{
      .momentum = choice.momentum,
      .nesterov = choice.nesterov,
      .steps = static_cast<int>(choice.iterations),
      .scale = choice.scale == MuonLr::aspect ? ops::MuonScale::aspect : ops::MuonScale::match_adamw};
  return std::make_unique<Muon>(std::move(groups), options, options_of(choice.others));
}

}  // namespace

ParameterKind parameter_kind(const std::string& name, const Tensor& parameter) {
  if (parameter.rank() < 2) return ParameterKind::vector;
  if (name.starts_with("layers.")) return is_table(name) ? ParameterKind::vector : ParameterKind::matrix;
  return ParameterKind::embedding;
}

NamedTensors distinct_parameters(const nn::Model& model) {
  NamedTensors result;
  const auto is_new = [&](const Tensor& parameter) {
    return std::none_of(result.begin(), result.end(),
                        [&](const NamedTensor& other) { return other.tensor.is_same_view(parameter); });
  };
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (is_new(parameter)) result.push_back({name, parameter});
  }
  return result;
}

std::vector<double> group_rates(const Recipe& recipe) {
  const Rates rates = rates_of(recipe.optimizer);
  return {rates.matrix_lr, rates.other_lr, rates.other_lr};
}

std::unique_ptr<Optimizer> make_optimizer(const nn::Model& model, const Recipe& recipe,
                                          const std::function<Tensor(const NamedTensor&)>& piece_of) {
  const Rates rates = rates_of(recipe.optimizer);
  std::vector<ParamGroup> groups(kGroups);
  groups[0] = {.params = {}, .lr = rates.matrix_lr, .weight_decay = rates.matrix_decay, .parts = model.packed_rows()};
  groups[1] = {.params = {},
               .lr = rates.other_lr,
               .weight_decay = recipe.decay_embeddings ? rates.other_decay : 0.0,
               .orthogonalize = false};
  groups[2] = {.params = {},
               .lr = rates.other_lr,
               .weight_decay = recipe.decay_vectors ? rates.other_decay : 0.0,
               .orthogonalize = false};
  for (const NamedTensor& parameter : distinct_parameters(model)) {
    const Tensor piece = piece_of ? piece_of(parameter) : parameter.tensor;
    if (!piece.defined()) continue;
    groups[static_cast<size_t>(parameter_kind(parameter.name, parameter.tensor))].params.push_back(
        {parameter.name, piece});
  }
  return std::visit([&](const auto& choice) { return make(choice, std::move(groups)); }, recipe.optimizer);
}

}  // namespace lamina::train
