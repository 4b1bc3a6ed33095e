#include "lamina/train/learner.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lamina/train/parameter_groups.h"
#include "lamina/train/pass.h"
#include "lamina/train/pipeline.h"

namespace lamina::train {
namespace {

DType dtype_of(const Recipe& recipe) { return recipe.dtype == Precision::bf16 ? DType::bf16 : DType::f32; }

nn::ModelOptions model_options(const Recipe& recipe, const RankGroups& groups) {
  nn::ModelOptions options = groups.model_options(dtype_of(recipe), static_cast<uint64_t>(recipe.seed));
  options.initial_deviation = recipe.initial_deviation;
  return options;
}

/// Stopwatch: lap() adds the seconds since the last lap, or since construction, to its argument.
class Watch {
 public:
  void lap(double& seconds) {
    const auto now = std::chrono::steady_clock::now();
    seconds += std::chrono::duration<double>(now - start_).count();
    start_ = now;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Learner::Learner(const Recipe& recipe, const Device& device, std::shared_ptr<comm::Communicator> communicator)
    : recipe_(recipe),
      device_(device),
      groups_(rank_groups(recipe.layout, device, std::move(communicator))),
      options_(model_options(recipe, groups_)),
      divided_(divide_weights(recipe, groups_, options_)),
      model_(recipe.architecture, device, options_) {
  // Accumulate gradients in f32 if there are several passes. With a single pass on the CPU, gradients have the weights'
  // dtype. The GPU always uses f32, because its GEMMs write f32 at no extra cost.
  const bool parallel = recipe.layout.is_parallel();
  const bool wide = recipe.accumulation > 1 || device.like() == DeviceKind::cuda || parallel;
  for (auto& [name, parameter] : model_.named_parameters()) {
    tape_.watch(parameter, wide ? DType::f32 : parameter.dtype());
  }
  rates_ = group_rates(recipe);
  if (parallel) {
    parallel_ = std::make_unique<ParallelUpdate>(model_, tape_, recipe_, groups_, divided_);
  }
  start_optimizer();
}

void Learner::start_optimizer() {
  device_update_.reset();
  optimizer_.reset();  // before the new one is created, so that two optimizer states never exist at once
  ema_.reset();
  optimizer_ = parallel_ ? parallel_->make_optimizer() : make_optimizer(model_, recipe_);
  if (!parallel_ && DeviceUpdate::possible(recipe_, device_, *optimizer_)) {
    device_update_ = std::make_unique<DeviceUpdate>(model_, tape_, dynamic_cast<AdamW&>(*optimizer_), recipe_, rates_);
  }
  if (recipe_.ema > 0) ema_ = std::make_unique<Ema>(kept_parameters(), recipe_.ema);
}

NamedTensors Learner::kept_parameters() const {
  return parallel_ ? parallel_->kept_parameters() : distinct_parameters(model_);
}

StepResult Learner::host_passes(int64_t step, const BatchAt& batch_at) {
  StepResult result;
  Watch watch;
  const auto input_at = [&](int64_t i) {
    watch.lap(result.times.backward);  // backward of the previous pass; nothing before the first one
    const int64_t index = step * recipe_.accumulation + i;
    const data::Batch batch = batch_at(index);
    PassInput input = pass_input(batch, 0, batch.rows, device_, static_cast<uint64_t>(index));
    watch.lap(result.times.data);
    return input;
  };
  run_passes(model_, tape_, recipe_, recipe_.accumulation, input_at, [&](int64_t /*i*/, const Tensor& loss) {
    const double value = loss.item();
    result.loss += value / static_cast<double>(recipe_.accumulation);
    watch.lap(result.times.forward);
    return std::isfinite(value);
  });
  watch.lap(result.times.backward);
  return result;
}

StepResult Learner::step(int64_t step, const BatchAt& batch_at) {
  if (parallel_) return parallel_step(step, batch_at);
  return device_update_ ? device_step(step, batch_at) : host_step(step, batch_at);
}

int64_t Learner::rehearse_update() {
  LAMINA_CHECK(device_.kind() == DeviceKind::meta, "rehearsal on ", device_, "; expected a meta device");
  constexpr int64_t kRehearsedPasses = 2;  // the second pass adds to gradients; further ones need no more memory
  const PassLengths lengths = pass_lengths(recipe_);
  const auto input = [&](int64_t rows) {
    const auto ids = [&](int64_t length) { return Tensor::empty({rows, length}, DType::i64, device_); };
    return PassInput{ids(lengths.ids),
                     ids(lengths.ids),
                     Tensor(),
                     0,
                     0,
                     lengths.source > 0 ? ids(lengths.source) : Tensor(),
                     empty_neighbours(recipe_, rows, device_)};
  };
  int64_t live = 0;
  if (parallel_) {
    live = parallel_->rehearse(input);
  } else {
    run_passes(model_, tape_, recipe_, std::min(recipe_.accumulation, kRehearsedPasses),
               [&](int64_t /*i*/) { return input(recipe_.batch); });
    live = device_.allocator().counters().live;
  }
  if (parallel_) {
    optimizer_->step(parallel_->gradients(*optimizer_));
    parallel_->share_parameters();
  } else {
    optimizer_->step(optimizer_->gradients(tape_));
  }
  tape_.zero_grad();
  if (ema_) ema_->update(1);
  return live;
}

void Learner::rehearse_evaluation() {
  LAMINA_CHECK(device_.kind() == DeviceKind::meta, "rehearsal on ", device_, "; expected a meta device");
  if (recipe_.eval_batch == 0) return;
  const NoGrad off(tape_);
  const Ema::InPlace averages(ema_.get());
  const DividedWeights::Use weights(divided_.get());
  const PassLengths lengths = pass_lengths(recipe_);
  const Tensor ids = Tensor::empty({recipe_.eval_batch, lengths.ids}, DType::i64, device_);
  nn::RunOptions run;
  if (lengths.source > 0) run.source = Tensor::empty({recipe_.eval_batch, lengths.source}, DType::i64, device_);
  run.neighbours = empty_neighbours(recipe_, recipe_.eval_batch, device_);
  staged_cross_entropy(model_, groups_.stages.get(), ids, ids, run);
}

std::vector<data::Batch> Learner::take_batches(int64_t step, const BatchAt& batch_at) {
  if (ahead_.step == step) {
    ahead_.step = -1;
    return std::move(ahead_.batches);
  }
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < recipe_.accumulation; ++i) batches.push_back(batch_at(step * recipe_.accumulation + i));
  return batches;
}

StepResult Learner::device_step(int64_t step, const BatchAt& batch_at) {
  StepResult result;
  Watch watch;
  const std::vector<data::Batch> batches = take_batches(step, batch_at);
  watch.lap(result.times.data);
  const double factor = lr_factor(recipe_.schedule, step, recipe_.steps);
  result.lr = rates_[0] * factor;
  device_update_->start(step, batches, factor);
  if (step + 1 < recipe_.steps) {
    std::vector<data::Batch> next = take_batches(step + 1, batch_at);
    ahead_ = {step + 1, std::move(next)};
  }
  const DeviceUpdate::Result done = device_update_->finish();
  watch.lap(result.times.device);
  result.loss = done.loss;
  result.grad_norm = done.grad_norm;
  if (!std::isfinite(done.loss) || !std::isfinite(done.grad_norm)) {
    explain_not_finite(step, batches);
  }
  if (ema_) ema_->update(step + 1);
  watch.lap(result.times.update);
  return result;
}

/// After a failed update: repeats its passes and reads the gradients, to report which one is not finite.
void Learner::explain_not_finite(int64_t step, const std::vector<data::Batch>& batches) {
  const int64_t first = step * recipe_.accumulation;
  const auto batch_at = [&](int64_t index) { return batches[static_cast<size_t>(index - first)]; };
  const double loss = host_passes(step, batch_at).loss;
  check_finite(step, loss, optimizer_->gradients(tape_), true);
  throw NotFinite(str("update ", step + 1, ": the loss or the norm of the gradients was not finite"));
}

StepResult Learner::host_step(int64_t step, const BatchAt& batch_at) {
  StepResult result = host_passes(step, batch_at);
  if (!std::isfinite(result.loss)) check_finite(step, result.loss, {}, false);
  Watch watch;
  const std::vector<Tensor> grads = optimizer_->gradients(tape_);
  const ops::GradNorm norm =
      recipe_.clip > 0 ? ops::clip_grad_norm_(grads, {.max_norm = recipe_.clip}) : ops::global_norm(grads);
  watch.lap(result.times.update);
  return update_from(step, std::move(result), grads, norm);
}

StepResult Learner::parallel_step(int64_t step, const BatchAt& batch_at) {
  StepResult result;
  Watch watch;
  result.loss = parallel_->run_passes(step, batch_at);
  watch.lap(result.times.backward);
  const std::vector<Tensor> grads = parallel_->gradients(*optimizer_);
  const ops::GradNorm norm{parallel_->norm(), {}};
  const double factor = recipe_.clip / (norm.norm + 1e-6);
  if (recipe_.clip > 0 && std::isfinite(norm.norm) && factor < 1) ops::scale_(grads, factor);
  watch.lap(result.times.update);
  return update_from(step, std::move(result), grads, norm);
}

/// The rest of an update, given clipped gradients.
StepResult Learner::update_from(int64_t step, StepResult result, const std::vector<Tensor>& grads,
                                const ops::GradNorm& norm) {
  Watch watch;
  result.grad_norm = norm.norm;
  check_finite(step, result.loss, grads, norm.bad.has_value() || !std::isfinite(norm.norm));
  const double factor = lr_factor(recipe_.schedule, step, recipe_.steps);
  for (size_t g = 0; g < rates_.size(); ++g) optimizer_->set_lr(g, rates_[g] * factor);
  result.lr = rates_[0] * factor;
  optimizer_->step(grads);
  if (parallel_) parallel_->share_parameters();
  tape_.zero_grad();
  if (ema_) ema_->update(step + 1);
  watch.lap(result.times.update);
  return result;
}

void Learner::check_finite(int64_t step, double loss, const std::vector<Tensor>& grads, bool bad_gradient) const {
  if (std::isfinite(loss) && !bad_gradient) return;
  std::string found = str("the loss is ", loss);
  for (const auto& [name, parameter] : kept_parameters()) {
    const ops::GradNorm norm = ops::global_norm({parameter.detach()});
    if (!norm.bad) continue;
    throw NotFinite(str("update ", step + 1, ": the weight ", name, " holds ", norm.bad->value, " at element ",
                        norm.bad->index, " of ", parameter.shape(),
                        "; lower the learning rate, lengthen the warm-up, or go back to an earlier checkpoint"));
  }
  const std::vector<std::string> names = optimizer_->names();
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    const ops::GradNorm norm = ops::global_norm({grads[i]});
    if (!norm.bad) continue;
    found = str("the gradient of ", names[i], " holds ", norm.bad->value, " at element ", norm.bad->index, " of ",
                grads[i].shape(), " (the loss is ", loss, ")");
    break;
  }
  throw NotFinite(str("update ", step + 1, ": ", found, ", all weights are finite; lower the learning rate, lengthen ",
                      "the warm-up, clip gradients (clip), or use dtype f32"));
}

std::optional<Measured> Learner::evaluate(const EvaluationData& data, const std::function<bool()>& stop) {
  const NoGrad off(tape_);
  const Ema::InPlace averages(ema_.get());
  const DividedWeights::Use weights(divided_.get());
  if (parallel_ && (groups_.data->size() > 1 || groups_.stages)) {
    return evaluate_shared(model_, data, parallel_->evaluation_ranks());
  }
  Tally tally;
  bool stopped = false;
  for (int64_t i = 0; i < data.batches && !stopped; ++i) {
    tally.add(model_, data.at(i), data.accuracy);
    stopped = !sharded() && stop && stop();
  }
  if (stopped) return {};
  return tally.result();
}

void Learner::with_kept_weights(const std::function<void(const nn::StateDict&)>& use) {
  const Ema::InPlace averages(ema_.get());
  const DividedWeights::Use weights(divided_.get(), /*all=*/true);
  if (!sharded()) return use(model_.state_dict());
  const nn::StateDict own = model_.state_dict();
  nn::StateDict whole;
  for (const NamedTensor& entry : sharded()->whole_model().state_dict()) {
    whole.push_back({entry.name, sharded()->gather_from(own, entry.name, entry.name, entry.tensor.dtype())});
  }
  use(whole);
}

NamedTensors Learner::training_state() const {
  NamedTensors state;
  for (const NamedTensor& entry : parallel_ ? parallel_->whole_state(*optimizer_) : optimizer_->state()) {
    state.push_back({kOptimizerPrefix + entry.name, entry.tensor});
  }
  if (!ema_) return state;
  sharded() != nullptr ? add_whole_average(state) : add_average(state);
  return state;
}

void Learner::add_average(NamedTensors& state) const {
  if (!ema_) return;
  const std::map<std::string, Tensor> averages = by_name(ema_->average());
  const std::map<std::string, Tensor> weights = by_name(kept_parameters());
  for (const auto& [prefix, own] : {std::pair(kAveragePrefix, averages), std::pair(kWeightsPrefix, weights)}) {
    for (const NamedTensor& parameter : distinct_parameters(model_)) {
      const DType narrow = parameter.tensor.dtype();
      const DType dtype = prefix == kAveragePrefix ? accumulation_type(narrow) : narrow;
      const auto found = own.find(parameter.name);
      const Tensor kept = found == own.end() ? Tensor() : found->second.detach();
      state.push_back({prefix + parameter.name, parallel_ ? parallel_->undivided(parameter.name, kept, dtype) : kept});
    }
  }
}

void Learner::add_whole_average(NamedTensors& state) const {
  NamedTensors own;
  add_average(own);
  for (const char* prefix : {kAveragePrefix, kWeightsPrefix}) {
    for (const NamedTensor& parameter : distinct_parameters(sharded()->whole_model())) {
      const std::string name = prefix + parameter.name;
      const DType dtype = own[prefix == kAveragePrefix ? 0 : own.size() - 1].tensor.dtype();
      state.push_back({name, sharded()->gather_from(own, name, parameter.name, dtype)});
    }
  }
}

}  // namespace lamina::train
