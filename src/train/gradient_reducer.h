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
  /// Sum micro-batches and ranks in the fixed tree of comm::ordered_sum. Otherwise the order of the sum is not fixed.
  bool ordered = false;
  /// Reduce-scatter: each rank gets only the sums of its own pieces (ZeRO-2 and 3).
  bool scatter = false;
  /// Send gradients in bf16; the sum over ranks is rounded to bf16. Not with `ordered`.
  bool bf16 = false;
  /// Reduce buckets in a separate thread during backward. False if backward itself communicates (ZeRO-3): buckets are
  /// then reduced in backward's own thread.
  bool overlaps_backward = true;
  /// Called in finish() with the sums over micro-batches, before they are summed over ranks. If set, nothing is reduced
  /// during backward, because backward itself may communicate (tensor and context parallelism).
  std::function<void(const std::vector<Tensor>& sums)> before_ranks = {};
};

/// Sums gradients over micro-batches and ranks. A bucket is reduced in a separate thread as soon as backward has
/// completed its parameters in the last micro-batch. With ZeRO-3 and unordered sums, buckets are reduced in every
/// micro-batch, so that no rank holds whole gradients.
class GradientReducer {
 public:
  /// `parameters` must be leaves of `tape`. `communicator` may have a single rank.
  GradientReducer(Tape& tape, NamedTensors parameters, const ShardPlan& plan, comm::Communicator& communicator,
                  ReducerOptions options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Begins an update with `count` micro-batches.
  void start(int64_t count);
  /// Call before backward of the last pass of micro-batch `index`. `which` selects parameters, for which micro-batches
  /// must come in order; empty: all parameters.
  void arm(int64_t index, const std::vector<bool>& which = {});
  /// Reports that a parameter's gradient is complete in this backward. Called by a leaf hook, or at the end of the
  /// layer.
  void ready(size_t parameter);
  /// Call after that backward. A parameter without a gradient counts as zeros.
  void disarm();
  /// Waits for all sums. Rethrows the communicator's exception, if any.
  void finish();

  /// The summed gradient of a parameter, in the parameter's shape. Not with `scatter` over several ranks.
  Tensor gradient(size_t parameter) const;
  /// The summed gradient of this rank's piece, [count]. Undefined if it has no piece.
  Tensor piece_gradient(size_t parameter) const;
  /// Whether the parameter had a gradient in any micro-batch of this rank.
  bool was_defined(size_t parameter) const { return defined_[parameter]; }

 private:
  /// Whether every micro-batch is reduced over ranks, instead of only their sum.
  bool every_micro_batch() const;
  void complete(size_t parameter, Tensor gradient);
  bool travels_in_bf16() const { return options_.bf16 && !buffers_.empty(); }
  DType travel_type(const Tensor& parameter) const;
  /// Whether a bucket is the gradient of its only parameter, so that nothing is copied.
  bool is_gradient(const Bucket& bucket) const { return bucket.parameters.size() == 1 && !options_.bf16; }
  void fill(size_t bucket);
  void send(size_t bucket);
  void reduce(size_t bucket);
  /// Converts the sums over ranks from bf16 to the accumulation type.
  void widen();
  void work();

  Tape& tape_;
  NamedTensors parameters_;
  const ShardPlan& plan_;
  comm::Communicator& communicator_;
  ReducerOptions options_;
  int64_t count_ = 0;       ///< number of micro-batches in this update
  int64_t index_ = -1;      ///< micro-batch whose backward is running; -1: none
  std::vector<bool> seen_;  ///< parameters whose gradient is complete in this backward
  std::vector<bool> defined_;
  std::vector<std::vector<Tensor>> partial_;  ///< per parameter: sums of complete subtrees of micro-batches
  /// Sums over micro-batches, until they are copied to a bucket. With bf16 and without scatter, finally the sums over
  /// ranks.
  std::vector<Tensor> complete_;
  std::vector<size_t> left_;         ///< per bucket: number of parameters it waits for
  size_t sent_ = 0;                  ///< number of buckets sent for reduction
  std::vector<Tensor> buffers_;      ///< per bucket, while it is being reduced; empty if there is only one rank
  std::vector<Tensor> own_;          ///< with scatter: the sums of this rank's pieces
  std::vector<Tensor> own_in_bf16_;  ///< with scatter and bf16: own_ before widen()

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> queue_;
  size_t reduced_ = 0;
  bool ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace lamina::train
