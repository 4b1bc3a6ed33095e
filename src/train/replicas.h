#pragma once

#include <memory>
#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/comm/communicator.h"
#include "lamina/train/gradient_reducer.h"
#include "lamina/train/recipe.h"
#include "lamina/train/sharded_weights.h"

namespace lamina::train {

class DividedWeights;

/// The buckets and pieces for a recipe. With ZeRO-3, each layer is a bucket.
ShardPlan zero_plan(const NamedTensors& parameters, const Recipe& recipe, int ranks);

/// Parameters that the same ranks hold, while each rank computes gradients for its own tokens: data-parallel ranks or,
/// for experts, those that hold the same experts. Sums their gradients. With ZeRO, a rank updates only its pieces.
class Replicas {
 public:
  /// `tape` must watch `parameters` with wide gradients (accumulation_type). `sharded`: see ParallelUpdate. `divided`
  /// holds the weights with ZeRO-3; otherwise null.
  Replicas(Tape& tape, NamedTensors parameters, const Recipe& recipe, std::shared_ptr<comm::Communicator> ranks,
           ShardedWeights* sharded, const DividedWeights* divided);

  comm::Communicator& ranks() const { return *ranks_; }
  const NamedTensors& parameters() const { return parameters_; }
  const ShardPlan& plan() const { return plan_; }
  GradientReducer& reducer() { return *reducer_; }

  bool divides_state() const { return zero_ > 0 && ranks_->size() > 1; }       ///< ZeRO-1, 2 or 3
  bool divides_gradients() const { return zero_ >= 2 && ranks_->size() > 1; }  ///< ZeRO-2 or 3
  /// Call in backward when all gradients of a layer's parameters are complete.
  void layer_complete(int64_t layer);
  /// The part of a parameter that this rank updates: all of it, a flat piece, or nothing.
  Tensor piece(size_t parameter) const;
  /// The gradient of piece(). Undefined if no rank has one.
  Tensor gradient(size_t parameter) const;
  /// Call after the passes of an update: defined[i] tells whether parameter i has a gradient on any rank.
  void set_defined(std::vector<bool> defined) { defined_ = std::move(defined); }
  bool is_defined(size_t parameter) const { return defined_.empty() || defined_[parameter]; }  ///< see set_defined()

  /// A flat part [begin, begin + count) of a parameter's gradient.
  struct GradientPart {
    int64_t begin = 0;
    Tensor values;  ///< [count]; undefined: nothing
  };
  /// The part of a gradient that this rank holds: all of it or, with divides_gradients(), its piece.
  GradientPart own_gradient(size_t parameter) const;
  /// Call after the optimizer: sends every rank the pieces that others updated, unless the weights are divided
  /// (ZeRO-3).
  void share_parameters() const;
  /// Gathers a tensor with the shape of a parameter from the pieces of all ranks. `own` is undefined on a rank without
  /// a piece.
  Tensor gather_pieces(size_t parameter, const Tensor& own, DType dtype, std::string_view label) const;

 private:
  NamedTensors parameters_;
  int64_t zero_;
  std::shared_ptr<comm::Communicator> ranks_;
  ShardPlan plan_;
  const DividedWeights* divided_;
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<bool> defined_;
};

}  // namespace lamina::train
