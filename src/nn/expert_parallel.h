#pragma once

#include <memory>

#include "lamina/comm/communicator.h"

namespace lamina::nn {

/// The ranks that divide the experts of a model (expert parallel, arXiv:2006.16668). Each computes its own tokens with
/// everything else. A router runs where the tokens are; a token's row travels to the ranks that hold its experts, and
/// their outputs come back (ops::run_divided_experts). All ranks run the same layers in the same order.
class ExpertParallel {
 public:
  /// `ranks` hold all experts together. `all` are the ranks over whose tokens the balancing loss is taken: those that
  /// compute a batch together, `ranks` or several such groups.
  ExpertParallel(std::shared_ptr<comm::Communicator> ranks, std::shared_ptr<comm::Communicator> all)
      : ranks_(std::move(ranks)), all_(std::move(all)) {}

  comm::Communicator& ranks() const { return *ranks_; }
  comm::Communicator& all() const { return *all_; }  ///< see the constructor

 private:
  std::shared_ptr<comm::Communicator> ranks_;
  std::shared_ptr<comm::Communicator> all_;
};

}  // namespace lamina::nn
