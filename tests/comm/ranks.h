#pragma once

#include <thread>

#include "lamina/comm/local.h"
#include "lamina/comm/socket.h"
#include "lamina/comm/tcp.h"

namespace lamina::testing {

/// Runs `body` on `ranks` ranks over TCP on this machine, each in a thread. Rank 0 is reached at `master`. Returns what
/// each rank threw, or "".
inline std::vector<std::string> run_tcp_ranks(int ranks, const std::function<void(comm::Communicator&)>& body,
                                              double deadline = 60, double heartbeat = 60,
                                              const std::string& master = "127.0.0.1") {
  const int port = comm::Socket::listen(0, master).port();
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      comm::RankEnvironment environment{rank, ranks, "torchrun", master, port, heartbeat, deadline};
      try {
        const auto transport = comm::make_tcp_transport(environment);
        try {
          body(*comm::make_communicator(transport, {.deadline = deadline}));
        } catch (const std::exception& error) {
          transport->abort(str("rank ", rank, " failed: ", error.what()));
          throw;
        }
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace lamina::testing
