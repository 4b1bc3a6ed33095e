#pragma once

#include "lamina/comm/communicator.h"
#include "lamina/comm/environment.h"

namespace lamina::comm {

/// Ranks as processes that talk over TCP sockets, one connection per pair. They meet at rank 0 (store.h); monitor.h
/// watches them. Needs no MPI.
std::shared_ptr<Transport> make_tcp_transport(const RankEnvironment& environment);

}  // namespace lamina::comm
