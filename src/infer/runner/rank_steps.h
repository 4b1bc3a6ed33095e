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

/// Rank 0 of the tensor-parallel ranks that hold models together. Requests, schedulers and sampling exist only on rank
/// 0. It sends each model call to the other ranks, whose StepFollower makes the same call with their shards. Runners of
/// several models, also in several threads, may share a leader; their model calls then take turns. Call stop() at the
/// end, or abort the communicator: until then the followers wait.
class StepLeader {
 public:
  explicit StepLeader(std::shared_ptr<const nn::TensorParallel> ranks);
  StepLeader(const StepLeader&) = delete;
  StepLeader& operator=(const StepLeader&) = delete;

  /// Returns the number of the next model. Followers must add their models in the same order.
  int32_t add_model() { return models_++; }
  /// Sends the message, then makes the model call on this rank. Throws comm::CommError if a rank is lost. Any other
  /// error ends all ranks, because their calls would no longer match.
  Tensor run(const StepMessage& message, const std::function<Tensor()>& call);
  /// Ends the followers. No step may come after this. Further calls do nothing.
  void stop();

 private:
  std::shared_ptr<const nn::TensorParallel> ranks_;
  std::mutex mutex_;  ///< only one thread at a time may use a communicator
  int32_t models_ = 0;
  bool stopped_ = false;
};

/// Runs on the other ranks: repeats the model calls of rank 0 with this rank's shard of the model and of the cache.
class StepFollower {
 public:
  explicit StepFollower(std::shared_ptr<const nn::TensorParallel> ranks);

  /// Allocates the cache of a model, while rank 0 creates its ModelRunner with the same options. `model` must outlive
  /// this object.
  void add(nn::Model& model, const ModelRunnerOptions& options);
  /// Serves calls until rank 0 stops. Sleeps while there are none, without a time limit. Throws comm::CommError if a
  /// rank is lost.
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
