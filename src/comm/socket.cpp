#include "lamina/comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace lamina::comm {
namespace {

int milliseconds_left(Clock::time_point expiry) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(expiry - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

/// Waits until the socket is ready. Returns false at the time limit.
bool wait_for(int descriptor, short events, Clock::time_point expiry) {
  pollfd one{descriptor, events, 0};
  for (;;) {
    const int ready = ::poll(&one, 1, milliseconds_left(expiry));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

void send_at_once(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

template <class SockAddress>
Address address_of(const SockAddress& given) {
  Address address;
  std::memcpy(&address.storage, &given, sizeof given);
  address.length = sizeof given;
  return address;
}

std::vector<Address> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw CommError(
        str("host ", host, " cannot be resolved: ", ::gai_strerror(error), "; set MASTER_ADDR to the host of rank 0"));
  }
  std::vector<Address> addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    addresses.emplace_back().length = a->ai_addrlen;
    std::memcpy(&addresses.back().storage, a->ai_addr, a->ai_addrlen);
  }
  ::freeaddrinfo(found);
  return addresses;
}

/// Connects a new socket. Returns 0 or an error number. A host that drops packets does not answer at all; the kernel
/// alone would wait for it for two minutes.
int connect_within(const Socket& socket, const Address& address, Clock::time_point expiry) {
  socket.set_blocking(false);
  int problem = ::connect(socket.descriptor(), address.get(), address.length) == 0 ? 0 : errno;
  if (problem == EINPROGRESS) {
    socklen_t length = sizeof problem;
    problem = ETIMEDOUT;
    if (wait_for(socket.descriptor(), POLLOUT, expiry)) {
      ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &problem, &length);
    }
  }
  socket.set_blocking(true);
  return problem;
}

/// The wildcard addresses: of IPv6, which also accepts IPv4 connections, and of IPv4, for machines without IPv6.
std::vector<Address> any_addresses(int port) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_any;
  v6.sin6_port = htons(static_cast<uint16_t>(port));
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_ANY);
  v4.sin_port = v6.sin6_port;
  return {address_of(v6), address_of(v4)};
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket Socket::listen(int port, const std::string& host) {
  int problem = 0;
  for (const Address& address : is_loopback(host) ? resolve(host, port) : any_addresses(port)) {
    Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    const int off = 0;
    ::setsockopt(socket.descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.family() == AF_INET6) ::setsockopt(socket.descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (socket.is_open() && ::bind(socket.descriptor_, address.get(), address.length) == 0 &&
        ::listen(socket.descriptor_, SOMAXCONN) == 0) {
      return socket;
    }
    problem = errno;
    if (problem == EADDRINUSE) break;  // with the other protocol alone, some ranks could not connect
  }
  throw CommError(str("port ", port, " cannot be opened: ", std::strerror(problem),
                      "; another job may use it, set MASTER_PORT to a free port"));
}

Socket Socket::connect(const std::string& host, int port, Clock::time_point expiry) {
  constexpr auto kAttempt = std::chrono::seconds(10);  // then the host's next address
  std::string problem = "no time";
  do {
    for (const Address& address : resolve(host, port)) {
      Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int error =
          socket.is_open() ? connect_within(socket, address, std::min(expiry, Clock::now() + kAttempt)) : errno;
      if (error == 0) {
        send_at_once(socket.descriptor_);
        return socket;
      }
      problem = std::strerror(error);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < expiry);
  throw CommError(str("no connection to ", host, " port ", port, ": ", problem,
                      "; check that rank 0 runs there (MASTER_ADDR, MASTER_PORT) and that no firewall is between"));
}

Socket Socket::accept(Clock::time_point expiry) const {
  if (!wait_for(descriptor_, POLLIN, expiry)) return {};
  Socket socket(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.is_open()) send_at_once(socket.descriptor_);
  return socket;
}

int Socket::port() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length);
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  return ntohs(address.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
}

std::string Socket::own_address() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length);
  char text[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

void Socket::set_blocking(bool blocking) const {
  const int flags = ::fcntl(descriptor_, F_GETFL, 0);
  ::fcntl(descriptor_, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

void Socket::shut_down() const {
  if (is_open()) ::shutdown(descriptor_, SHUT_RDWR);
}

bool Socket::send(const void* data, size_t bytes, Clock::time_point expiry) const {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    if (!wait_for(descriptor_, POLLOUT, expiry)) return false;
    const ssize_t sent = ::send(descriptor_, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (sent <= 0) continue;
    from += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool Socket::receive(void* data, size_t bytes, Clock::time_point expiry) const {
  auto* into = static_cast<char*>(data);
  while (bytes > 0) {
    if (!wait_for(descriptor_, POLLIN, expiry)) return false;
    const ssize_t got = ::recv(descriptor_, into, bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
    if (got < 0) continue;
    into += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::string this_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace lamina::comm
