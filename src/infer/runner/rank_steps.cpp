#include "lamina/infer/runner/rank_steps.h"

#include "lamina/infer/runner/cache_size.h"

namespace lamina::infer {
namespace {

constexpr const char* kLabel = "engine step";
constexpr double kNoDeadline = 1e9;  ///< in seconds; an idle server sends nothing, and heartbeats detect a lost rank

/// Tells all other ranks why this one fails.
void abort_ranks(comm::Communicator& ranks, const std::exception& error) {
  ranks.abort(str("rank ", ranks.rank(), " (host ", ranks.host(ranks.rank()), ") failed: ", error.what()));
}

}  // namespace

StepLeader::StepLeader(std::shared_ptr<const nn::TensorParallel> ranks) : ranks_(std::move(ranks)) {
  LAMINA_CHECK(ranks_ != nullptr && ranks_->ranks().rank() == 0, "StepLeader: expected rank 0 of the ranks that hold ",
               "the models; use StepFollower on the others");
}

Tensor StepLeader::run(const StepMessage& message, const std::function<Tensor()>& call) {
  const std::lock_guard lock(mutex_);
  LAMINA_CHECK(!stopped_, "StepLeader: a step after stop(); end all engines first");
  comm::Communicator& ranks = ranks_->ranks();
  try {
    const std::vector<int32_t> numbers = encode(message);
    const auto count = static_cast<int64_t>(numbers.size());
    const Device host = Device::cpu(1);
    ranks.broadcast(Tensor::from(std::vector<int64_t>{count}, {1}, host), 0, {.label = kLabel});
    ranks.broadcast(Tensor::from(numbers, {count}, host), 0, {.label = kLabel});
    return call();
  } catch (const comm::CommError&) {
    throw;
  } catch (const std::exception& error) {
    abort_ranks(ranks, error);
    throw;
  }
}

void StepLeader::stop() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(stopped_, true)) return;
  ranks_->ranks().broadcast(Tensor::zeros({1}, DType::i64, Device::cpu(1)), 0, {.label = kLabel});
}

StepFollower::StepFollower(std::shared_ptr<const nn::TensorParallel> ranks) : ranks_(std::move(ranks)) {
  LAMINA_CHECK(ranks_ != nullptr && ranks_->ranks().rank() > 0, "StepFollower: expected a rank other than 0 of the ",
               "ranks that hold the models; use StepLeader on rank 0");
}

void StepFollower::add(nn::Model& model, const ModelRunnerOptions& options) {
  const ModelRunnerOptions checked = checked_options(options, model);
  models_.push_back({&model, make_caches(model, checked), checked.activations});
}

void StepFollower::repeat(const StepMessage& message) {
  LAMINA_CHECK(message.model >= 0 && message.model < static_cast<int32_t>(models_.size()), "StepFollower: a step of ",
               "model ", message.model, "; this rank has ", models_.size(),
               " models (internal error, please report it)");
  Followed& own = models_[static_cast<size_t>(message.model)];
  for (const CacheChange& change : message.changes) apply(change, *own.cache);
  const Device& device = own.model->device();
  const HostStep& step = message.step;
  nn::RowBatch rows = row_batch(step, *own.cache, device);
  rows.activations = own.activations;
  const auto vector = [&](const std::vector<int64_t>& values) {
    return Tensor::from(values, {static_cast<int64_t>(values.size())}, device);
  };
  own.model->row_logits(vector(step.ids), rows, *own.cache, vector(step.wanted));
}

void StepFollower::run() {
  comm::Communicator& ranks = ranks_->ranks();
  const Device host = Device::cpu(1);
  try {
    for (;;) {
      const Tensor count = Tensor::zeros({1}, DType::i64, host);
      ranks.broadcast(count, 0, {.label = kLabel, .deadline = kNoDeadline});
      if (count.data<int64_t>()[0] == 0) return;
      const Tensor numbers = Tensor::zeros({count.data<int64_t>()[0]}, DType::i32, host);
      ranks.broadcast(numbers, 0, {.label = kLabel});
      repeat(decode({numbers.data<int32_t>(), static_cast<size_t>(numbers.numel())}));
    }
  } catch (const comm::CommError&) {
    throw;
  } catch (const std::exception& error) {
    abort_ranks(ranks, error);
    throw;
  }
}

}  // namespace lamina::infer
