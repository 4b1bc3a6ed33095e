#pragma once

#include <memory>

#include "lamina/arch/tensor_shards.h"
#include "lamina/comm/communicator.h"
#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// The ranks that hold one model together (tensor parallelism). Each builds the same layers, with its own heads,
/// feed-forward columns and vocabulary rows (arch::sharded_spec). Communication happens only at the borders of a
/// sublayer: ForwardContext::enter() before it, leave() after it.
///
/// Without `sequence`, every rank has the whole residual stream [batch, seq, d_model], and leave() is an all-reduce.
/// With `sequence` (sequence parallelism), rank r has its share of the batch · seq tokens, [1, tokens, d_model]. Norms,
/// dropout and residual additions are then divided, too; enter() is an all-gather and leave() a reduce-scatter.
class TensorParallel {
 public:
  TensorParallel(std::shared_ptr<comm::Communicator> ranks, bool sequence)
      : ranks_(std::move(ranks)), sequence_(sequence) {}

  comm::Communicator& ranks() const { return *ranks_; }
  bool sequence() const { return sequence_; }  ///< whether ranks divide the tokens of the residual stream
  /// Number of tokens in each rank's share of `tokens`.
  std::vector<int64_t> token_counts(int64_t tokens) const;

 private:
  std::shared_ptr<comm::Communicator> ranks_;
  bool sequence_;
};

}  // namespace lamina::nn
