#include "lamina/train/optimizer.h"
#include "lamina/ops/optim/slots_kernel.h"

#include <algorithm>
#include <set>

namespace lamina::train {
namespace {

constexpr const char* kUpdates = ".updates";
constexpr const char* kMaster = ".master";

/// Maps names to tensors. Throws an Error if a name occurs twice.
std::map<std::string, Tensor> by_unique_name(const NamedTensors& state) {
  std::map<std::string, Tensor> result;
  for (const NamedTensor& entry : state) {
    LAMINA_CHECK(entry.tensor.defined(), "optimizer state: ", entry.name, " is undefined");
    LAMINA_CHECK(result.emplace(entry.name, entry.tensor).second, "optimizer state: ", entry.name, " is given twice");
  }
  return result;
}

void check_entry(const NamedTensor& ours, const std::map<std::string, Tensor>& given) {
  const auto found = given.find(ours.name);
  LAMINA_CHECK(found != given.end(), "optimizer state: ", ours.name,
               " is missing; load the state of the same model and optimizer");
  LAMINA_CHECK(found->second.shape() == ours.tensor.shape() && found->second.dtype() == ours.tensor.dtype(),
               "optimizer state: ", ours.name, " is ", found->second.dtype(), " ", found->second.shape(), "; expected ",
               ours.tensor.dtype(), " ", ours.tensor.shape());
}

}  // namespace

Optimizer::Optimizer(std::vector<ParamGroup> groups, MomentNames moment_names) : groups_(std::move(groups)) {
  std::set<std::string> seen;
  std::map<const void*, std::string> places;
  for (size_t g = 0; g < groups_.size(); ++g) {
    set_lr(g, groups_[g].lr);
    ops::check_not_negative("optimizer", "weight_decay", groups_[g].weight_decay);
    for (const NamedTensor& named : groups_[g].params) {
      const Tensor& param = named.tensor;
      LAMINA_CHECK(param.defined(), "optimizer: the parameter ", named.name, " is undefined");
      LAMINA_CHECK(is_floating(param.dtype()) && param.is_contiguous(), "optimizer: the parameter ", named.name, " is ",
                   param.dtype(), " ", param.shape(), "; expected a contiguous tensor of a floating type");
      LAMINA_CHECK(seen.insert(named.name).second, "optimizer: the name ", named.name, " is given twice");
      if (param.raw() != nullptr) {
        const auto [place, fresh] = places.emplace(param.raw(), named.name);
        LAMINA_CHECK(fresh, "optimizer: ", named.name, " and ", place->second,
                     " are the same memory; give a tied parameter once");
      }
      Parameter parameter{.name = named.name, .param = param, .group = g};
      const auto parts = groups_[g].parts.find(named.name);
      if (parts != groups_[g].parts.end()) parameter.parts = parts->second;
      const DType wide = accumulation_type(param.dtype());
      if (size_of(param.dtype()) == 2) parameter.master = param.detach().to(wide);
      for (const std::string& moment : moment_names(param, groups_[g])) {
        parameter.moments.push_back({named.name + "." + moment, Tensor::zeros(param.shape(), wide, param.device())});
      }
      parameters_.push_back(std::move(parameter));
    }
    groups_[g].params.clear();
  }
}

void Optimizer::set_lr(size_t group, double lr) {
  ops::check_not_negative("optimizer", "lr", lr);
  groups_.at(group).lr = lr;
}

std::vector<Tensor> Optimizer::gradients(const Tape& tape) const {
  std::vector<Tensor> grads;
  for (const Parameter& parameter : parameters_) grads.push_back(tape.grad(parameter.param));
  return grads;
}

std::vector<std::string> Optimizer::names() const {
  std::vector<std::string> result;
  for (const Parameter& parameter : parameters_) result.push_back(parameter.name);
  return result;
}

void Optimizer::step(const std::vector<Tensor>& grads) {
  LAMINA_CHECK(grads.size() == parameters_.size(), "optimizer: ", grads.size(), " gradients for ", parameters_.size(),
               " parameters; give one for each, undefined where there is none");
  std::vector<Update> updates;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    const Parameter& parameter = parameters_[i];
    const ParamGroup& group = groups_[parameter.group];
    // Detached, so that the tape does not record the update. If a saved tensor changes, its version counter reveals it.
    updates.push_back(
        {&parameter, {parameter.param.detach(), grads[i], parameter.master, group.lr, group.weight_decay}});
  }
  apply(updates);
  for (size_t i = 0; i < grads.size(); ++i) {
    parameters_[i].updated = grads[i].defined();
    parameters_[i].updates += parameters_[i].updated ? 1 : 0;
  }
}

void Optimizer::count_repeated_update() {
  for (Parameter& parameter : parameters_) parameter.updates += parameter.updated ? 1 : 0;
}

int64_t Optimizer::updates() const {
  int64_t most = 0;
  for (const Parameter& parameter : parameters_) most = std::max(most, parameter.updates);
  return most;
}

NamedTensors Optimizer::state() const {
  NamedTensors result;
  for (const Parameter& parameter : parameters_) {
    const std::vector<int64_t> updates{parameter.updates};
    result.push_back({parameter.name + kUpdates, Tensor::from(updates, {1}, parameter.param.device())});
    if (parameter.master.defined()) result.push_back({parameter.name + kMaster, parameter.master});
    result.insert(result.end(), parameter.moments.begin(), parameter.moments.end());
  }
  return result;
}

void Optimizer::load_state(const NamedTensors& state) {
  const std::map<std::string, Tensor> given = by_unique_name(state);
  const NamedTensors ours = this->state();
  std::set<std::string> known;
  for (const NamedTensor& entry : ours) {
    check_entry(entry, given);
    known.insert(entry.name);
  }
  for (const auto& [name, tensor] : given) {
    LAMINA_CHECK(known.contains(name), "optimizer state: ", name, " belongs to no parameter of this optimizer");
    LAMINA_CHECK(tensor.is_meta() || !name.ends_with(kUpdates) || tensor.item() >= 0, "optimizer state: ", name, " is ",
                 tensor.item(), "; expected a count >= 0");
  }
  for (NamedTensor entry : ours) {
    if (entry.tensor.raw() != given.at(entry.name).raw()) entry.tensor.copy_(given.at(entry.name));
  }
  for (Parameter& parameter : parameters_) {
    const Tensor& updates = given.at(parameter.name + kUpdates);
    if (!updates.is_meta()) parameter.updates = updates.to_vector<int64_t>()[0];
  }
}

ops::AdamWSlot Optimizer::adamw_slot(const Update& update) {
  const Parameter& parameter = *update.parameter;
  return {update.slot, parameter.moments[0].tensor, parameter.moments[1].tensor, parameter.updates + 1};
}

namespace {

std::vector<std::string> adamw_moments(const Tensor& /*param*/, const ParamGroup& /*group*/) { return {"m", "v"}; }
std::vector<std::string> sgd_moments(const Tensor& /*param*/, const ParamGroup& /*group*/) { return {"momentum"}; }
std::vector<std::string> no_moments(const Tensor& /*param*/, const ParamGroup& /*group*/) { return {}; }
std::vector<std::string> muon_moments(const Tensor& param, const ParamGroup& group) {
  if (param.rank() >= 2 && group.orthogonalize) return {"momentum"};
  return {"m", "v"};
}

}  // namespace

AdamW::AdamW(std::vector<ParamGroup> groups, const ops::AdamWOptions& options)
    : Optimizer(std::move(groups), adamw_moments), options_(options) {
  ops::adamw({}, options);  // throws now if an option is invalid, not at the first step
}

void AdamW::apply(const std::vector<Update>& updates) {
  std::vector<ops::AdamWSlot> slots;
  slots.reserve(updates.size());
  for (const Update& update : updates) slots.push_back(adamw_slot(update));
  ops::adamw(std::move(slots), options_);
}

Sgd::Sgd(std::vector<ParamGroup> groups, const ops::SgdOptions& options)
    : Optimizer(std::move(groups), options.momentum == 0.0 ? no_moments : sgd_moments), options_(options) {
  ops::sgd({}, options);
}

void Sgd::apply(const std::vector<Update>& updates) {
  std::vector<ops::SgdSlot> slots;
  for (const Update& update : updates) {
    const NamedTensors& moments = update.parameter->moments;
    slots.push_back({update.slot, moments.empty() ? Tensor() : moments[0].tensor});
  }
  ops::sgd(std::move(slots), options_);
}

Muon::Muon(std::vector<ParamGroup> groups, const ops::MuonOptions& options, const ops::AdamWOptions& others)
    : Optimizer(std::move(groups), muon_moments), options_(options), others_(others) {
  ops::muon({}, options);
  ops::adamw({}, others);
}

void Muon::apply(const std::vector<Update>& updates) {
  std::vector<ops::MuonSlot> matrices;
  std::vector<ops::AdamWSlot> rest;
  for (const Update& update : updates) {
    if (update.parameter->moments.size() == 1) {
      ops::MuonSlot slot{update.slot, update.parameter->moments[0].tensor, update.parameter->parts};
      const std::string& name = update.parameter->name;
      if (divided_.divides && divided_.divides(name)) {
        const auto parts = divided_.parts.find(name);
        slot.parts = parts == divided_.parts.end() ? std::vector<int64_t>() : parts->second;
        slot.gather = [this, &name](const Tensor& own) { return divided_.gather(name, own); };
        slot.own_part = [this, &name](const Tensor& whole) { return divided_.own_part(name, whole); };
      }
      matrices.push_back(std::move(slot));
    } else {
      rest.push_back(adamw_slot(update));
    }
  }
  ops::muon(std::move(matrices), options_);
  ops::adamw(std::move(rest), others_);
}

}  // namespace lamina::train
