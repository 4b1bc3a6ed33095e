#include "lamina/comm/tcp.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <random>
#include <sstream>

#include "lamina/comm/monitor.h"
#include "lamina/comm/store.h"

namespace lamina::comm {
namespace {

/// The first bytes on a connection between two ranks.
struct Introduction {
  uint64_t job = 0;  ///< random number of the job, which identifies its connections
  int64_t rank = 0;
};

/// Progress of a message: the bytes sent or received so far. The header is transferred first.
struct Transfer {
  CallHeader header;
  char* data = nullptr;
  size_t bytes = 0;
  size_t done = 0;

  size_t total() const { return sizeof(CallHeader) + bytes; }
  bool is_done() const { return done == total(); }
  /// The next bytes to transfer.
  iovec rest() {
    if (done < sizeof(CallHeader)) return {reinterpret_cast<char*>(&header) + done, sizeof(CallHeader) - done};
    return {data + (done - sizeof(CallHeader)), total() - done};
  }
};

/// State of an exchange with one peer.
struct Link {
  int rank = 0;
  std::deque<Transfer> out;
  std::deque<Transfer> in;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(const RankEnvironment& environment, std::vector<std::string> hosts, std::vector<Socket> peers,
               std::vector<Socket> connections)
      : rank_(environment.rank),
        hosts_(std::move(hosts)),
        peers_(std::move(peers)),
        monitor_(rank_, std::move(connections), hosts_, environment.heartbeat_seconds) {
    for (const Socket& peer : peers_) {
      if (peer.is_open()) peer.set_blocking(false);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  std::string host(int rank) const override { return hosts_.at(static_cast<size_t>(rank)); }
  std::string_view name() const override { return "tcp"; }
  void abort(const std::string& reason) override { monitor_.abort(reason); }
  std::string failure() const override { return monitor_.reason(); }

  void exchange(const Call& call, std::span<const Send> sends, std::span<const Receive> receives) override {
    std::vector<Link> links(hosts_.size());
    for (const Send& send : sends) {
      // Only read, but iovec has a single pointer type.
      char* data = const_cast<char*>(static_cast<const char*>(send.data));
      links[static_cast<size_t>(send.to)].out.push_back({header_of(call, send.bytes), data, send.bytes});
    }
    for (const Receive& receive : receives) {
      links[static_cast<size_t>(receive.from)].in.push_back({{}, static_cast<char*>(receive.data), receive.bytes});
    }
    for (size_t r = 0; r < links.size(); ++r) links[r].rank = static_cast<int>(r);
    std::erase_if(links, [](const Link& link) { return link.out.empty() && link.in.empty(); });
    monitor_.set_call(&call);
    while (!links.empty()) {
      wait_for_any(call, links);
      for (Link& link : links) move_bytes(call, link);
      std::erase_if(links, [](const Link& link) { return link.out.empty() && link.in.empty(); });
    }
    monitor_.set_call(nullptr);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) {
    monitor_.abort(reason);
    throw CommError(monitor_.reason());
  }

  void throw_if_aborted() const {
    if (const std::string reason = monitor_.reason(); !reason.empty()) throw CommError(reason);
  }

  void wait_for_any(const Call& call, const std::vector<Link>& links) {
    std::vector<pollfd> polled;
    for (const Link& link : links) {
      const auto events = static_cast<short>((link.in.empty() ? 0 : POLLIN) | (link.out.empty() ? 0 : POLLOUT));
      polled.push_back({peers_[static_cast<size_t>(link.rank)].descriptor(), events, 0});
    }
    while (::poll(polled.data(), polled.size(), 50) <= 0) {
      throw_if_aborted();
      if (Clock::now() < call.expiry) continue;
      const int late = links.front().rank;
      fail(str("rank ", late, " (host ", host(late), ") did not reach ", describe(call), " within ", call.seconds,
               " s; rank ", rank_, " (host ", host(rank_), ") waited for it"));
    }
  }

  void move_bytes(const Call& call, Link& link) {
    const int descriptor = peers_[static_cast<size_t>(link.rank)].descriptor();
    while (!link.out.empty()) {
      Transfer& transfer = link.out.front();
      const iovec rest = transfer.rest();
      const ssize_t sent = ::send(descriptor, rest.iov_base, rest.iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (sent < 0) lost(call, link.rank);
      transfer.done += static_cast<size_t>(sent);
      if (transfer.is_done()) link.out.pop_front();
    }
    while (!link.in.empty()) {
      Transfer& transfer = link.in.front();
      const iovec rest = transfer.rest();
      const ssize_t got = ::recv(descriptor, rest.iov_base, rest.iov_len, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (got <= 0) lost(call, link.rank);
      transfer.done += static_cast<size_t>(got);
      if (transfer.done == sizeof(CallHeader)) {
        const std::string problem = mismatch(call, transfer.header, transfer.bytes);
        if (!problem.empty()) {
          fail(str("rank ", link.rank, " (host ", host(link.rank), ") does not follow rank ", rank_, " (host ",
                   host(rank_), ") in ", describe(call), ": ", problem));
        }
      }
      if (transfer.is_done()) link.in.pop_front();
    }
  }

  /// Called when a connection is closed. The monitor usually knows the reason a moment later.
  [[noreturn]] void lost(const Call& call, int rank) {
    const auto patience = Clock::now() + std::chrono::seconds(1);
    while (monitor_.reason().empty() && Clock::now() < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    throw_if_aborted();
    fail(str("rank ", rank, " (host ", host(rank), ") is lost: it closed its connection while rank ", rank_, " (host ",
             host(rank_), ") was in ", describe(call)));
  }

  int rank_;
  std::vector<std::string> hosts_;
  std::vector<Socket> peers_;  ///< indexed by rank; this rank's own entry is not open
  Monitor monitor_;
};

/// Contact data that ranks exchange as text: "host address port job".
struct Contact {
  std::string host;
  std::string address;
  int port = 0;
  uint64_t job = 0;
};

Contact read_contact(const std::string& text) {
  Contact contact;
  std::istringstream words(text);
  words >> contact.host >> contact.address >> contact.port >> contact.job;
  if (!words || contact.port <= 0 || contact.port > 65535) {
    throw CommError("a rank sent an address that cannot be read; start all ranks from one version of lamina");
  }
  return contact;
}

/// Rank i connects to all lower ranks and accepts connections from all higher ranks.
std::vector<Socket> connect_all(const RankEnvironment& environment, const std::vector<Contact>& contacts,
                                const Socket& door, Clock::time_point expiry) {
  std::vector<Socket> peers(contacts.size());
  const uint64_t job = contacts[0].job;
  for (int r = 0; r < environment.rank; ++r) {
    const Contact& contact = contacts[static_cast<size_t>(r)];
    const std::string& address = r == 0 ? environment.master_address : contact.address;
    Socket socket = Socket::connect(address, contact.port, expiry);
    const Introduction own{job, environment.rank};
    if (!socket.send(&own, sizeof own, expiry)) throw CommError(str("rank ", r, " was lost while the job started"));
    peers[static_cast<size_t>(r)] = std::move(socket);
  }
  for (int missing = environment.size - environment.rank - 1; missing > 0;) {
    Socket socket = door.accept(expiry);
    if (!socket.is_open() && Clock::now() >= expiry) {
      throw CommError(str(missing, " ranks did not connect to rank ", environment.rank, " within ",
                          environment.start_seconds(), " s; check that no firewall is between the hosts"));
    }
    Introduction who;
    if (!socket.is_open() || !socket.receive(&who, sizeof who, Clock::now() + std::chrono::seconds(5))) continue;
    if (who.job != job || who.rank <= environment.rank || who.rank >= environment.size) continue;
    peers[static_cast<size_t>(who.rank)] = std::move(socket);
    --missing;
  }
  return peers;
}

}  // namespace

std::shared_ptr<Transport> make_tcp_transport(const RankEnvironment& environment) {
  const Socket door = Socket::listen(0, environment.master_address);
  std::random_device random;
  const uint64_t job = (uint64_t{random()} << 32U) ^ random();
  Meeting meeting = meet(
      environment,
      [&](const std::string& own) {
        return str(this_host(), " ", own.empty() ? environment.master_address : own, " ", door.port(), " ", job);
      },
      environment.start_seconds());
  std::vector<Contact> contacts;
  std::vector<std::string> hosts;
  for (const std::string& value : meeting.values) {
    contacts.push_back(read_contact(value));
    hosts.push_back(contacts.back().host);
  }
  std::vector<Socket> peers = connect_all(
      environment, contacts, door,
      Clock::now() +
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(environment.start_seconds())));
  return std::make_shared<TcpTransport>(environment, std::move(hosts), std::move(peers),
                                        std::move(meeting.connections));
}

}  // namespace lamina::comm
