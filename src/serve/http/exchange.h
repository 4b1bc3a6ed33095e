#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lamina::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// Value of a header, whose name is matched without regard to case; empty if it is missing.
std::string_view header_of(const Headers& headers, std::string_view name);

/// A request as the handler receives it.
struct HttpRequest {
  std::string id;      ///< x-request-id: the client's, if it is short and plain; otherwise a new one
  std::string method;  ///< "GET", "POST", …
  std::string path;    ///< target without the query
  std::string query;   ///< the target after '?', encoded
  Headers headers;
  std::string body;
  std::string peer;  ///< address of the client
  std::chrono::steady_clock::time_point received;
};

/// A response: status, body and headers.
struct HttpResponse {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  Headers headers;
};

/// One request and its response. A response is either one send(), or start(), any number of write(), and finish(). All
/// functions may be called from any thread. Calls from one thread take effect in order; on the network thread they take
/// effect immediately. They do nothing after the client has disconnected.
class Exchange {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual const HttpRequest& request() const = 0;
  virtual void send(HttpResponse response) = 0;
  /// Begins a chunked response; the body of `head` is ignored.
  virtual void start(HttpResponse head) = 0;
  virtual void write(std::string_view chunk) = 0;
  virtual void finish() = 0;
  /// Runs a task on the network thread.
  virtual void post(std::function<void()> task) = 0;
  /// Sets a function to call on the network thread if the client disconnects, or reads too slowly, before the response
  /// is complete. If that has already happened, it is called at once.
  virtual void on_close(std::function<void()> task) = 0;
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

}  // namespace lamina::serve
