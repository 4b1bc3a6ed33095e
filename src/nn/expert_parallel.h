#pragma once

#include <memory>

#include "lamina/comm/communicator.h"

namespace lamina::nn {

/// The ranks that divide the experts of a model (expert parallelism, arXiv:2006.16668). Each rank computes everything
/// except the experts for its own tokens. The router runs on the token's rank; the token's row is sent to the ranks
/// that hold its experts, and their outputs come back (ops::run_divided_experts). All ranks run the same layers in the
/// same order.
class ExpertParallel {
 public:
  /// `ranks` together hold all experts. The balancing loss is computed over the tokens of `all`: the ranks that compute
  /// one batch together, which are `ranks` or several such groups.
  ExpertParallel(std::shared_ptr<comm::Communicator> ranks, std::shared_ptr<comm::Communicator> all)
      : ranks_(std::move(ranks)), all_(std::move(all)) {}

  comm::Communicator& ranks() const { return *ranks_; }
  comm::Communicator& all() const { return *all_; }  ///< see the constructor

 private:
  std::shared_ptr<comm::Communicator> ranks_;
  std::shared_ptr<comm::Communicator> all_;
};

}  // namespace lamina::nn
