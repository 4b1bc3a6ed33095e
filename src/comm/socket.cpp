#include "lamina/comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

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

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw CommError(
        str("host ", host, " cannot be resolved: ", ::gai_strerror(error), "; set MASTER_ADDR to the host of rank 0"));
  }
  return {found, ::freeaddrinfo};
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

Socket Socket::listen(int port, bool only_here) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(only_here ? INADDR_LOOPBACK : INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (!socket.is_open() || ::bind(socket.descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.descriptor_, SOMAXCONN) != 0) {
    throw CommError(str("port ", port, " cannot be opened: ", std::strerror(errno),
                        "; another job may use it, set MASTER_PORT to a free port"));
  }
  return socket;
}

Socket Socket::connect(const std::string& host, int port, Clock::time_point expiry) {
  std::string problem = "no time";
  do {
    const Addresses addresses = resolve(host, port);
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (socket.is_open() && ::connect(socket.descriptor_, a->ai_addr, a->ai_addrlen) == 0) {
        send_at_once(socket.descriptor_);
        return socket;
      }
      problem = std::strerror(errno);
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

bool is_loopback(const std::string& host) { return host == "localhost" || host.starts_with("127."); }

std::string this_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace lamina::comm
