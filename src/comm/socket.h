#pragma once

#include <cstddef>
#include <string>

#include "lamina/comm/transport.h"

namespace lamina::comm {

/// A TCP socket. The destructor closes it. Functions throw CommError.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  /// Listens on a port; 0 means any free port. If `host`, the name by which others reach this machine, is its loopback
  /// interface, listens only there; otherwise on all interfaces, for IPv4 and IPv6.
  static Socket listen(int port, const std::string& host);
  /// Connects. Tries repeatedly until `expiry`, because the other side may not have started yet.
  static Socket connect(const std::string& host, int port, Clock::time_point expiry);
  /// Accepts the next connection to a listening socket. Not open if there was none until `expiry`.
  Socket accept(Clock::time_point expiry) const;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  int port() const;                 ///< own port
  std::string own_address() const;  ///< own numeric address
  void set_blocking(bool blocking) const;
  /// Ends the connection in both directions. A thread that waits in receive() returns.
  void shut_down() const;

  /// Sends all bytes. Returns false if the connection is closed or `expiry` has passed.
  bool send(const void* data, size_t bytes, Clock::time_point expiry) const;
  /// Receives exactly `bytes` bytes. Returns false if the connection is closed or `expiry` has passed.
  bool receive(void* data, size_t bytes, Clock::time_point expiry) const;

 private:
  int descriptor_ = -1;
};

/// Whether a host name means this machine's loopback interface.
bool is_loopback(const std::string& host);
/// Name of this machine.
std::string this_host();

}  // namespace lamina::comm
