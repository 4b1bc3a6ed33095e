#include "lamina/train/learner.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lamina/comm/fake.h"
#include "lamina/comm/local.h"
#include "lamina/train/parameter_groups.h"
#include "lamina/train/pass.h"

namespace lamina::train {
namespace {

DType dtype_of(const Recipe& recipe) { return recipe.dtype == Precision::bf16 ? DType::bf16 : DType::f32; }

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

/// The communicator of a layout's ranks: the given one, a rehearsal on meta, or one rank by itself.
std::shared_ptr<comm::Communicator> ranks_of(const LayoutChoice& layout, const Device& device,
                                             std::shared_ptr<comm::Communicator> given) {
  LAMINA_CHECK(device.like() != DeviceKind::cuda, "layout: several ranks, micro-batches and ordered sums run on CPUs ",
               "only yet; use --device cpu, or the default layout on a GPU");
  if (given) {
    LAMINA_CHECK(given->size() == layout.ranks(), "the layout has ", layout.ranks(), " ranks, the communicator ",
                 given->size(), "; start as many processes as layout.dp says");
    return given;
  }
  if (device.kind() == DeviceKind::meta) return comm::FakeWorld(static_cast<int>(layout.ranks())).communicator(0);
  LAMINA_CHECK(layout.ranks() == 1, "the layout has ", layout.ranks(), " ranks but this is one process; start it with ",
               "`lamina launch --nproc ", layout.ranks(), " -- train ...` or mpirun");
  return comm::single_rank();
}

}  // namespace

Learner::Learner(const Recipe& recipe, const Device& device, std::shared_ptr<comm::Communicator> communicator)
    : recipe_(recipe),
      device_(device),
      model_(recipe.architecture, device, {.dtype = dtype_of(recipe), .seed = static_cast<uint64_t>(recipe.seed)}) {
  // Accumulate gradients in f32 if there are several passes. A single pass keeps the weights' dtype on the CPU. The GPU
  // always uses f32, because its GEMMs write f32 at no extra cost.
  const bool parallel = recipe.layout.is_parallel();
  const bool wide = recipe.accumulation > 1 || device.like() == DeviceKind::cuda || parallel;
  for (auto& [name, parameter] : model_.named_parameters()) {
    tape_.watch(parameter, wide ? DType::f32 : parameter.dtype());
  }
  rates_ = group_rates(recipe);
  if (parallel) {
    parallel_ = std::make_unique<ParallelUpdate>(model_, tape_, recipe_,
                                                 ranks_of(recipe.layout, device, std::move(communicator)));
  }
  start_optimizer();
}

void Learner::start_optimizer() {
  device_update_.reset();
  optimizer_ = parallel_ ? parallel_->make_optimizer() : make_optimizer(model_, recipe_);
  if (!parallel_ && DeviceUpdate::possible(recipe_, device_, *optimizer_)) {
    device_update_ = std::make_unique<DeviceUpdate>(model_, tape_, dynamic_cast<AdamW&>(*optimizer_), recipe_, rates_);
  }
  if (recipe_.ema > 0) ema_ = std::make_unique<Ema>(distinct_parameters(model_), recipe_.ema);
}

StepResult Learner::host_passes(int64_t step, const BatchAt& batch_at) {
  StepResult result;
  Watch watch;
  const auto input_at = [&](int64_t i) {
    watch.lap(result.times.backward);  // of the pass before; nothing before the first
    const int64_t index = step * recipe_.accumulation + i;
    const data::Batch batch = batch_at(index);
    PassInput input{Tensor::from(batch.ids, {batch.rows, batch.length}, device_),
                    Tensor::from(batch.targets, {batch.rows, batch.length}, device_), Tensor(),
                    static_cast<uint64_t>(index)};
    if (!batch.document_starts.empty()) {
      input.document_starts =
          Tensor::from(batch.document_starts, {static_cast<int64_t>(batch.document_starts.size())}, device_);
    }
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
  constexpr int64_t kTwoAddUp = 2;  // two passes show the peak memory of any accumulation
  const int64_t rows = parallel_ ? parallel_->most_rows() : recipe_.batch;
  const auto ids = [&] { return Tensor::empty({rows, recipe_.length}, DType::i64, device_); };
  run_passes(model_, tape_, recipe_, std::min(recipe_.accumulation, kTwoAddUp), [&](int64_t /*i*/) {
    return PassInput{ids(), ids(), Tensor(), 0};
  });
  const int64_t live = device_.allocator().counters().live;
  if (parallel_) {
    parallel_->rehearse_sums();
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
  const Tensor ids = Tensor::empty({recipe_.eval_batch, recipe_.length}, DType::i64, device_);
  model_.loss(ids, ids);
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

/// Repeats the passes of the failed update with readable gradients, to report which one is not finite.
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

/// The rest of an update, from clipped gradients.
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
  for (const auto& [name, parameter] : model_.named_parameters()) {
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
  if (parallel_ && parallel_->communicator().size() > 1)
    return evaluate_shared(model_, data, parallel_->communicator());
  Tally tally;
  bool stopped = false;
  for (int64_t i = 0; i < data.batches && !stopped; ++i) {
    tally.add(model_, data.at(i), data.accuracy);
    stopped = stop && stop();
  }
  if (stopped) return {};
  return tally.result();
}

void Learner::with_kept_weights(const std::function<void(const nn::StateDict&)>& use) {
  const Ema::InPlace averages(ema_.get());
  use(model_.state_dict());
}

void Learner::load_weights(const nn::StateDict& weights) {
  const NoGrad off(tape_);
  model_.load_state_dict(weights);
  start_optimizer();
}

namespace {
constexpr const char* kOptimizer = "optimizer.";
constexpr const char* kAverage = "average.";
constexpr const char* kWeights = "weights.";
}  // namespace

NamedTensors Learner::training_state() const {
  NamedTensors state;
  for (const NamedTensor& entry : parallel_ ? parallel_->whole_state(*optimizer_) : optimizer_->state()) {
    state.push_back({kOptimizer + entry.name, entry.tensor});
  }
  add_average(state);
  return state;
}

void Learner::add_average(NamedTensors& state) const {
  if (!ema_) return;
  for (const NamedTensor& entry : ema_->average()) state.push_back({kAverage + entry.name, entry.tensor});
  for (const NamedTensor& entry : distinct_parameters(model_)) {
    state.push_back({kWeights + entry.name, entry.tensor.detach()});
  }
}

void Learner::load(const nn::StateDict& kept_weights, const NamedTensors& state) {
  load_weights(kept_weights);
  NamedTensors own;
  NamedTensors ours;  // besides the optimizer's
  add_average(ours);
  for (const NamedTensor& entry : state) {
    if (entry.name.starts_with(kOptimizer))
      own.push_back({entry.name.substr(std::string(kOptimizer).size()), entry.tensor});
  }
  optimizer_->load_state(parallel_ ? parallel_->own_state(*optimizer_, own) : own);
  for (NamedTensor target : ours) {
    const auto found = std::find_if(state.begin(), state.end(), [&](const auto& e) { return e.name == target.name; });
    LAMINA_CHECK(found != state.end() && found->tensor.shape() == target.tensor.shape(),
                 "training state: ", target.name, " is missing or misshapen; the checkpoint is of another recipe");
    target.tensor.copy_(found->tensor);
  }
}

}  // namespace lamina::train
