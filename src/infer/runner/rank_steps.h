#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lamina/infer/runner/model_runner.h"
#include "lamina/infer/runner/step_message.h"
#include "lamina/nn/tensor_parallel.h"

namespace lamina::infer {

/// Rank 0 of the ranks that hold models together (tensor parallel). Requests, schedulers and sampling exist on rank 0
/// only. It sends each model call to the other ranks, whose StepFollower makes the same call on their shards. Runners
/// of several models may share a leader, also from several threads: model calls then take turns. Call stop() at the
/// end, or abort the communicator; until then the followers wait.
class StepLeader {
 public:
  explicit StepLeader(std::shared_ptr<const nn::TensorParallel> ranks);
  StepLeader(const StepLeader&) = delete;
  StepLeader& operator=(const StepLeader&) = delete;

  /// The number of the next model; followers add theirs in the same order.
  int32_t add_model() { return models_++; }
  /// Sends the message, then makes the model call on this rank. Throws comm::CommError if a rank is lost. Any other
  /// error ends all ranks, because they no longer make the same calls.
  Tensor run(const StepMessage& message, const std::function<Tensor()>& call);
  /// Ends the followers; no step may follow. Does nothing the second time.
  void stop();

 private:
  std::shared_ptr<const nn::TensorParallel> ranks_;
  std::mutex mutex_;  ///< a communicator belongs to one thread at a time
  int32_t models_ = 0;
  bool stopped_ = false;
};

/// The other ranks: repeats the model calls of rank 0, each with its own shard of the model and of the cache.
class StepFollower {
 public:
  explicit StepFollower(std::shared_ptr<const nn::TensorParallel> ranks);

  /// Allocates the cache of a model, while rank 0 makes its ModelRunner with the same options. `model` must outlive
  /// this.
  void add(nn::Model& model, const ModelRunnerOptions& options);
  /// Returns once rank 0 has stopped. Waits for calls as long as it takes, asleep. Throws comm::CommError if a rank is
  /// lost.
  void run();

 private:
  struct Followed {
    nn::Model* model;
    std::unique_ptr<nn::SequenceCache> cache;
    std::optional<DType> activations;
  };
  void repeat(const StepMessage& message);

  std::shared_ptr<const nn::TensorParallel> ranks_;
  std::vector<Followed> models_;
};

}  // namespace lamina::infer
