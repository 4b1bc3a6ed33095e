#include "lamina/comm/monitor.h"

#include <poll.h>

#include <algorithm>

namespace lamina::comm {
namespace {

enum Kind : uint32_t { kBeat = 0x4c4d4201, kBye = 0x4c4d4202, kAbort = 0x4c4d4203 };
constexpr uint32_t kMaxReason = 4096;

/// A message between a rank and rank 0. `text_bytes` bytes of text follow it.
struct ControlMessage {
  uint32_t kind = kBeat;
  uint32_t text_bytes = 0;
  CallHeader doing;  ///< the sender's current call; magic 0: none, the sender computes
};

Clock::duration of_seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string doing_text(const CallHeader& doing) {
  if (doing.magic == 0) return doing.update > 0 ? str("computing update ", doing.update) : "computing";
  Call call;
  call.operation =
      doing.operation < names_of(Operation{}).size() ? static_cast<Operation>(doing.operation) : call.operation;
  const auto end = std::find(doing.label.begin(), doing.label.end(), '\0');
  call.label = std::string_view(doing.label.data(), static_cast<size_t>(end - doing.label.begin()));
  call.update = doing.update;
  return "in " + describe(call);
}

}  // namespace

/// The rank at the other end of a connection.
struct Monitor::Peer {
  int rank = 0;
  Socket socket;
  bool watched = true;  ///< false after it said goodbye or was lost
  Clock::time_point heard = Clock::now();
  CallHeader doing;
};

Monitor::Monitor(int rank, std::vector<Socket> connections, std::vector<std::string> hosts, double heartbeat_seconds)
    : rank_(rank), hosts_(std::move(hosts)), heartbeat_seconds_(heartbeat_seconds) {
  for (size_t i = 0; i < connections.size(); ++i) {
    if (!connections[i].is_open()) continue;
    auto peer = std::make_unique<Peer>();
    peer->rank = rank == 0 ? static_cast<int>(i) : 0;
    peer->socket = std::move(connections[i]);
    peers_.push_back(std::move(peer));
  }
  thread_ = std::thread([this] { watch(); });
}

Monitor::~Monitor() {
  done_ = true;
  thread_.join();
  const std::lock_guard lock(mutex_);
  for (const auto& peer : peers_) {
    if (peer->watched) send(*peer, kBye, "");
  }
}

void Monitor::set_call(const Call* call) {
  const std::lock_guard lock(mutex_);
  if (call != nullptr) {
    doing_ = header_of(*call, 0);
  } else {
    doing_.magic = 0;
  }
}

std::string Monitor::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void Monitor::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  stop_all(reason, nullptr);
}

/// Requires the lock. Gives up a connection if the other end does not read for a second.
void Monitor::send(Peer& peer, uint32_t kind, const std::string& text) {
  ControlMessage message{kind, static_cast<uint32_t>(std::min<size_t>(text.size(), kMaxReason)), doing_};
  std::string bytes(reinterpret_cast<const char*>(&message), sizeof message);
  bytes += text.substr(0, kMaxReason);
  peer.socket.send(bytes.data(), bytes.size(), Clock::now() + of_seconds(1));
}

/// Requires the lock.
void Monitor::stop_all(const std::string& reason, const Peer* except) {
  if (!reason_.empty()) return;
  reason_ = reason;
  for (const auto& peer : peers_) {
    if (peer->watched && peer.get() != except) send(*peer, kAbort, reason);
  }
}

/// Requires the lock. Also says what this rank is doing: heartbeats are some time apart, so that is more current than
/// the peer's last message.
std::string Monitor::last_seen(const Peer& peer) const {
  return str("it was last seen ", doing_text(peer.doing), ", rank ", rank_, " (host ",
             hosts_[static_cast<size_t>(rank_)], ") is ", doing_text(doing_));
}

/// Requires the lock.
void Monitor::beat() {
  for (const auto& peer : peers_) {
    if (peer->watched) send(*peer, kBeat, "");
    const bool silent = peer->watched && Clock::now() - peer->heard > of_seconds(heartbeat_seconds_);
    if (!silent) continue;
    peer->watched = false;
    stop_all(str("rank ", peer->rank, " (host ", hosts_[static_cast<size_t>(peer->rank)], ") has been silent for ",
                 heartbeat_seconds_, " s: it is stopped or its host does not answer; ", last_seen(*peer)),
             peer.get());
  }
}

/// Requires the lock. Reads one message of a peer whose socket is readable.
void Monitor::read_from(Peer& peer) {
  ControlMessage message;
  const auto expiry = Clock::now() + of_seconds(1);
  const bool got = peer.socket.receive(&message, sizeof message, expiry);
  std::string text(got ? std::min(message.text_bytes, kMaxReason) : 0, '\0');
  if (!got || !peer.socket.receive(text.data(), text.size(), expiry)) {
    peer.watched = false;
    stop_all(str("rank ", peer.rank, " (host ", hosts_[static_cast<size_t>(peer.rank)],
                 ") is lost: its process ended; ", last_seen(peer)),
             &peer);
    return;
  }
  peer.heard = Clock::now();
  peer.doing = message.doing;
  if (message.kind == kBye) peer.watched = false;
  if (message.kind == kAbort) stop_all(text, &peer);
}

void Monitor::watch() {
  const double interval = std::min(1.0, heartbeat_seconds_ / 8);
  Clock::time_point next_beat = Clock::now();
  std::vector<pollfd> polled;
  while (!done_) {
    polled.clear();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& peer : peers_) {
        polled.push_back({peer->watched ? peer->socket.descriptor() : -1, POLLIN, 0});
      }
    }
    ::poll(polled.data(), polled.size(), 20);
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) read_from(*peers_[i]);
    }
    if (Clock::now() < next_beat) continue;
    next_beat = Clock::now() + of_seconds(interval);
    beat();
  }
}

}  // namespace lamina::comm
