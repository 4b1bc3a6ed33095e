#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/comm/communicator.h"
#include "lamina/train/shard_plan.h"

namespace lamina::train {

/// Options of a GradientReducer.
struct ReducerOptions {
  /// Sum micro-batches and ranks in the tree of comm::ordered_sum, else as they come.
  bool ordered = false;
  /// Leave each rank only the sums of its own pieces (ZeRO-2 and 3).
  bool scatter = false;
  /// Gradients travel in bf16, and the sum over ranks is rounded to bf16. Not with `ordered`.
  bool bf16 = false;
  /// Buckets travel in a thread while backward runs. False: backward itself uses the ranks' connections (ZeRO-3), so
  /// buckets travel in between, in its thread.
  bool beside_backward = true;
  /// Called in finish() with the sums over micro-batches, before ranks are summed. If set, nothing travels while
  /// backward runs: backward itself may use the ranks' connections then (tensor and context parallel).
  std::function<void(const std::vector<Tensor>& sums)> before_ranks = {};
};

/// Sums gradients over micro-batches and ranks. A bucket starts to travel, in a thread of its own, as soon as backward
/// has completed its parameters in the last micro-batch. With ZeRO-3 and sums in any order, buckets travel in every
/// micro-batch, so that no rank holds whole gradients.
class GradientReducer {
 public:
  /// `parameters` are leaves of `tape`. `communicator` may have one rank.
  GradientReducer(Tape& tape, NamedTensors parameters, const ShardPlan& plan, comm::Communicator& communicator,
                  ReducerOptions options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Starts an update of `count` micro-batches.
  void start(int64_t count);
  /// Before backward of the last pass of micro-batch `index`. `which`: only of these parameters, whose micro-batches
  /// come in order; empty: of all.
  void arm(int64_t index, const std::vector<bool>& which = {});
  /// The gradient of a parameter is complete in this backward: known from a leaf hook, or from the layer's end.
  void ready(size_t parameter);
  /// After that backward. A parameter without a gradient counts as zeros.
  void disarm();
  /// Waits for all sums. Throws what the communicator threw.
  void finish();

  /// The sum of a parameter's gradient, in the parameter's shape. Not with `scatter` over several ranks.
  Tensor gradient(size_t parameter) const;
  /// The sum for this rank's piece [count], or undefined if it has none.
  Tensor piece_gradient(size_t parameter) const;
  /// Whether any micro-batch of this rank had a gradient of the parameter.
  bool was_defined(size_t parameter) const { return defined_[parameter]; }

 private:
  /// Whether every micro-batch is summed over ranks, not only the sum of all.
  bool every_micro_batch() const;
  void complete(size_t parameter, Tensor gradient);
  bool travels_in_bf16() const { return options_.bf16 && !buffers_.empty(); }
  DType travel_type(const Tensor& parameter) const;
  void fill(size_t bucket);
  void send(size_t bucket);
  void reduce(size_t bucket);
  /// Converts sums over ranks from bf16.
  void widen();
  void work();

  Tape& tape_;
  NamedTensors parameters_;
  const ShardPlan& plan_;
  comm::Communicator& communicator_;
  ReducerOptions options_;
  int64_t count_ = 0;       ///< micro-batches of this update
  int64_t index_ = -1;      ///< micro-batch in backward; -1: none
  std::vector<bool> seen_;  ///< parameters that are ready in this backward
  std::vector<bool> defined_;
  std::vector<std::vector<Tensor>> partial_;  ///< sums of complete subtrees of micro-batches, by parameter
  /// Sums over micro-batches, until they are in a bucket; with bf16 and without scatter in the end those over ranks.
  std::vector<Tensor> complete_;
  std::vector<size_t> left_;         ///< parameters that each bucket waits for
  size_t sent_ = 0;                  ///< buckets on their way
  std::vector<Tensor> buffers_;      ///< of each bucket, while it travels; empty for one rank
  std::vector<Tensor> own_;          ///< with scatter: the sums of this rank's pieces
  std::vector<Tensor> own_in_bf16_;  ///< with scatter and bf16: the same before widen()

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> queue_;
  size_t reduced_ = 0;
  bool ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace lamina::train
