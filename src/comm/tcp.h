#pragma once

#include "lamina/comm/communicator.h"
#include "lamina/comm/environment.h"

namespace lamina::comm {

/// A transport for ranks that are processes, over TCP sockets with one connection per pair. Ranks meet at rank 0
/// (store.h), and monitor.h watches them. Does not need MPI.
std::shared_ptr<Transport> make_tcp_transport(const RankEnvironment& environment);

}  // namespace lamina::comm
