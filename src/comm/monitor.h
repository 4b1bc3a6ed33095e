#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lamina/comm/socket.h"

namespace lamina::comm {

/// Watches the processes of a job over their connections to rank 0, in a separate thread. Every rank sends heartbeats
/// that say what it is doing. If a process ends without saying goodbye, or is silent for too long (stopped, swapping,
/// or its host is down), rank 0 tells all other ranks why the job ends. If rank 0 is lost, each rank notices that
/// itself.
class Monitor {
 public:
  /// `connections` are those of a Meeting. `hosts` has the machine name of every rank.
  Monitor(int rank, std::vector<Socket> connections, std::vector<std::string> hosts, double heartbeat_seconds);
  ~Monitor();  ///< says goodbye
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Sets the call in which this rank is waiting. Null: it computes.
  void set_call(const Call* call);
  /// Why the job ends. Empty while all ranks work.
  std::string reason() const;
  /// Ends the job on all ranks with this reason. Only the first reason counts.
  void abort(const std::string& reason);

 private:
  struct Peer;
  void watch();
  void read_from(Peer& peer);
  void beat();
  void send(Peer& peer, uint32_t kind, const std::string& text);
  std::string last_seen(const Peer& peer) const;
  void stop_all(const std::string& reason, const Peer* except);

  int rank_;
  std::vector<std::string> hosts_;
  double heartbeat_seconds_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_;
  CallHeader doing_;
  std::string reason_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace lamina::comm
