#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lamina/serve/http/exchange.h"
#include "lamina/serve/http/policy.h"

namespace lamina::serve {

/// Address, TLS files and limits of a server.
struct ServerOptions {
  std::string host = "127.0.0.1";  ///< an IP address, or a name that resolves to one
  int port = 8080;                 ///< 0: any free port
  std::string certificate, key;    ///< PEM files for TLS; give both or none (plain HTTP)
  int64_t max_connections = 4096;
  int64_t max_header_bytes = int64_t{16} << 10;
  int64_t max_body_bytes = int64_t{32} << 20;
  int64_t max_unsent_bytes = int64_t{4} << 20;  ///< unsent bytes of a stream; above, the client is disconnected
  double header_seconds = 10;                   ///< time limit for receiving the headers, from their first byte
  double body_seconds = 60;                     ///< time limit for receiving the body
  double idle_seconds = 75;                     ///< time limit between two requests of a connection
  double write_seconds = 30;                    ///< time limit without write progress; then the client is disconnected
  double ping_seconds = 10;                     ///< an event stream without data for this long gets a comment line
};

/// One line of the access log.
struct AccessRecord {
  std::string id, peer, method, path;
  int status = 0;         ///< 0: the client disconnected before the response
  int64_t bytes = 0;      ///< size of the response body
  double seconds = 0;     ///< from the arrival of the headers to the end of the response
  bool complete = false;  ///< whether the whole response was sent
};

/// Callbacks of a server; each may be empty.
struct ServerHooks {
  std::function<void(const AccessRecord&)> on_access;
  std::function<void()> on_drain;                      ///< the first SIGTERM or SIGINT arrived
  std::function<void()> on_hangup;                     ///< SIGHUP arrived
  std::function<void(const std::string&)> on_problem;  ///< messages for the operator
};

/// An asynchronous HTTP/1.1 server. Its only network thread is the one that calls run(). Keeps connections alive,
/// streams chunked responses with bounded queues, and notices a disconnect while a response is computed.
class Server {
 public:
  /// Listens at once. Throws Error if the address is in use or the certificate cannot be read. `policy` must outlive
  /// the server.
  Server(ServerOptions options, const Policy& policy, Handler handler, ServerHooks hooks = {});
  ~Server();

  int port() const;
  /// http://127.0.0.1:8080
  std::string address() const;
  /// Serves until SIGTERM or SIGINT, then answers the running requests. A second signal ends them. Returns whether all
  /// requests were answered.
  bool run();
  /// Same as SIGTERM. Thread-safe.
  void drain();
  /// Same as a second SIGTERM. Thread-safe.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lamina::serve
