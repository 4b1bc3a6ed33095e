#pragma once

#include <functional>

#include "lamina/comm/communicator.h"

namespace lamina::comm {

/// Options for ranks that are threads.
struct LocalOptions {
  double deadline = 600;  ///< time limit in seconds; see CommunicatorOptions
  /// Bandwidth of a simulated link between ranks, in bytes per second; 0: no simulation. A rank sleeps as long as its
  /// messages would take, and needs no core meanwhile.
  double bandwidth = 0;
};

/// Runs body(communicator) in `ranks` threads of this process, one per rank, and waits for all. If a rank throws, the
/// others end with a CommError, and the first exception is rethrown. Other backends are tested against this one.
void run_local_ranks(int ranks, const std::function<void(Communicator&)>& body, const LocalOptions& options = {});

/// A communicator with a single rank.
std::shared_ptr<Communicator> single_rank();

}  // namespace lamina::comm
