#include "lamina/comm/store.h"

#include <cstring>

namespace lamina::comm {
namespace {

constexpr uint32_t kHelloMagic = 0x4c4d4831;  // "LMH1"
// Instead of the length of rank 0's value: the job does not start, and a text that says why follows.
constexpr uint32_t kGivesUp = 0xffffffff;
constexpr uint32_t kRefused = 0xfffffffe;  // as kGivesUp, but starting again would fail, too

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void put(std::string& bytes, uint32_t value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }

/// Reads a hello and its value from a new connection. Returns false if the connection does not belong to this job.
bool read_hello(const Socket& socket, Hello& hello, std::string& value, Clock::time_point expiry) {
  std::string bytes(kHelloBytes, '\0');
  if (!socket.receive(bytes.data(), bytes.size(), std::min(expiry, after(5)))) return false;
  const std::optional<Hello> decoded = decode_hello(bytes);
  if (!decoded) return false;
  hello = *decoded;
  value.resize(hello.value_bytes);
  return socket.receive(value.data(), value.size(), std::min(expiry, after(5)));
}

std::string missing_ranks(const Meeting& meeting) {
  std::string text;
  int count = 0;
  for (size_t rank = 1; rank < meeting.connections.size(); ++rank) {
    if (meeting.connections[rank].is_open() || ++count > 8) continue;
    text += str(text.empty() ? "" : ", ", rank);
  }
  return count > 8 ? str(text, " and ", count - 8, " more") : text;
}

/// Tells the ranks that are there why the job does not start.
void tell_all(const Meeting& meeting, uint32_t kind, const std::string& reason) {
  std::string bytes;
  put(bytes, kind);
  put(bytes, static_cast<uint32_t>(reason.size()));
  bytes += reason;
  for (const Socket& socket : meeting.connections) {
    if (socket.is_open()) socket.send(bytes.data(), bytes.size(), after(1));
  }
}

/// Reads what tell_all() sends after its first word; empty if the connection ends.
std::string read_reason(const Socket& master) {
  uint32_t bytes = 0;
  if (!master.receive(&bytes, sizeof bytes, after(1)) || bytes > kMaxValueBytes) return "";
  std::string reason(bytes, '\0');
  return master.receive(reason.data(), reason.size(), after(1)) ? reason : "";
}

/// Takes the connection of a rank, or throws if it does not belong to this job.
void take_rank(Meeting& meeting, int size, const Hello& hello, std::string value, Socket socket) {
  const auto rank = static_cast<size_t>(hello.rank);
  if (hello.size != size) {
    const std::string reason =
        str("rank ", hello.rank, " was started as one of ", hello.size, " ranks, rank 0 as one of ", size,
            "; start all with the same number of ranks (WORLD_SIZE)");
    meeting.connections.push_back(std::move(socket));
    tell_all(meeting, kRefused, reason);
    throw Error(reason);
  }
  if (rank == 0 || meeting.connections[rank].is_open()) {
    const std::string reason = str("two processes say that they are rank ", hello.rank,
                                   "; give each its own RANK, and each job its own MASTER_PORT");
    meeting.connections.push_back(std::move(socket));
    tell_all(meeting, kGivesUp, reason);
    throw CommError(reason);
  }
  meeting.values[rank] = std::move(value);
  meeting.connections[rank] = std::move(socket);
}

Meeting meet_as_master(const RankEnvironment& environment, const std::string& own, Clock::time_point expiry,
                       double seconds) {
  const Socket door = Socket::listen(environment.master_port, environment.master_address);
  Meeting meeting;
  meeting.values.resize(static_cast<size_t>(environment.size));
  meeting.connections.resize(static_cast<size_t>(environment.size));
  meeting.values[0] = own;
  for (int count = 1; count < environment.size;) {
    Socket socket = door.accept(expiry);
    if (!socket.is_open() && Clock::now() >= expiry) {
      const std::string reason =
          str("rank(s) ", missing_ranks(meeting), " of ", environment.size, " did not start within ", seconds,
              " s; check the launcher, and MASTER_ADDR and MASTER_PORT on all hosts");
      tell_all(meeting, kGivesUp, reason);
      throw CommError(reason);
    }
    Hello hello;
    std::string value;
    if (!socket.is_open() || !read_hello(socket, hello, value, expiry)) continue;
    take_rank(meeting, environment.size, hello, std::move(value), std::move(socket));
    ++count;
  }
  std::string table;
  for (const std::string& value : meeting.values) {
    put(table, static_cast<uint32_t>(value.size()));
    table += value;
  }
  for (size_t rank = 1; rank < meeting.connections.size(); ++rank) {
    if (meeting.connections[rank].send(table.data(), table.size(), expiry)) continue;
    throw CommError(str("rank ", rank, " was lost while the job started"));
  }
  return meeting;
}

Meeting meet_as_guest(const RankEnvironment& environment,
                      const std::function<std::string(const std::string&)>& value_of, Clock::time_point expiry) {
  Meeting meeting;
  meeting.connections.push_back(Socket::connect(environment.master_address, environment.master_port, expiry));
  const Socket& master = meeting.connections[0];
  const std::string value = value_of(master.own_address());
  LAMINA_CHECK(value.size() <= kMaxValueBytes, "store: a value of ", value.size(), " bytes; at most ", kMaxValueBytes,
               " are expected");
  const std::string hello = encode_hello({environment.rank, environment.size, static_cast<uint32_t>(value.size())});
  bool fine = master.send((hello + value).data(), hello.size() + value.size(), expiry);
  for (int rank = 0; rank < environment.size && fine; ++rank) {
    uint32_t bytes = 0;
    fine = master.receive(&bytes, sizeof bytes, expiry);
    if (fine && (bytes == kGivesUp || bytes == kRefused)) {
      const std::string reason = read_reason(master);
      if (!reason.empty() && bytes == kRefused) throw Error(reason);
      if (!reason.empty()) throw CommError(reason);
    }
    fine = fine && bytes <= kMaxValueBytes;
    if (!fine) break;
    std::string entry(bytes, '\0');
    fine = master.receive(entry.data(), entry.size(), expiry);
    meeting.values.push_back(std::move(entry));
  }
  if (!fine) {
    throw CommError(str("rank 0 at ", environment.master_address, " port ", environment.master_port,
                        " ended the connection while the job started; its output says why"));
  }
  return meeting;
}

}  // namespace

std::string encode_hello(const Hello& hello) {
  std::string bytes;
  put(bytes, kHelloMagic);
  put(bytes, static_cast<uint32_t>(hello.rank));
  put(bytes, static_cast<uint32_t>(hello.size));
  put(bytes, hello.value_bytes);
  return bytes;
}

std::optional<Hello> decode_hello(const std::string& bytes) {
  if (bytes.size() != kHelloBytes) return {};
  uint32_t words[4];
  std::memcpy(words, bytes.data(), sizeof words);
  const bool fits =
      words[0] == kHelloMagic && words[2] <= kMostRanks && words[1] < words[2] && words[3] <= kMaxValueBytes;
  if (!fits) return {};
  return Hello{static_cast<int>(words[1]), static_cast<int>(words[2]), words[3]};
}

Meeting meet(const RankEnvironment& environment, const std::function<std::string(const std::string& own)>& value_of,
             double seconds) {
  LAMINA_CHECK(!environment.master_address.empty() && environment.master_port > 0,
               "the address of rank 0 is not known; set MASTER_ADDR and MASTER_PORT on all ranks");
  const Clock::time_point expiry = after(seconds);
  if (environment.rank == 0) return meet_as_master(environment, value_of(""), expiry, seconds);
  return meet_as_guest(environment, value_of, expiry);
}

}  // namespace lamina::comm
