#pragma once

#include <functional>

#include "lamina/comm/communicator.h"

namespace lamina::comm {

/// How ranks that are threads communicate.
struct LocalOptions {
  double deadline = 600;  ///< seconds; see CommunicatorOptions
  /// Bytes per second of a pretended link between ranks; 0: as fast as memory. A rank sleeps as long as its messages
  /// would take, without using a core.
  double bandwidth = 0;
};

/// Runs body(communicator) in `ranks` threads of this process, one per rank, and waits for all. If a rank throws, the
/// others end with CommError; the first exception that caused it is rethrown. The reference that other backends are
/// compared with.
void run_local_ranks(int ranks, const std::function<void(Communicator&)>& body, const LocalOptions& options = {});

/// A communicator of one rank.
std::shared_ptr<Communicator> single_rank();

}  // namespace lamina::comm
