#pragma once

#include <string>
#include <vector>

#include "lamina/comm/communicator.h"

namespace lamina::train {

/// Something that all ranks of a run must have alike.
struct Agreement {
  std::string what;    ///< for the message, for example "recipe"
  std::string value;   ///< compared with that of rank 0
  std::string advice;  ///< what to do if it differs
};

/// Compares every value with that of rank 0. If one differs, all ranks throw the same Error, which names the first rank
/// and its host. Waits without a limit for ranks that are still preparing. Nothing is compared without a communicator.
void check_ranks_agree(comm::Communicator* ranks, const std::vector<Agreement>& agreements);

}  // namespace lamina::train
