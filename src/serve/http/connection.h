#pragma once

// Internal header: it includes Boost. All of this runs on the network thread.
#include <utility>  // before Boost 1.74, which uses std::exchange without it

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "lamina/serve/http/server.h"

namespace lamina::serve {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using TlsStream = asio::ssl::stream<Tcp::socket>;

/// A connection, with or without TLS.
class ConnectionBase {
 public:
  ConnectionBase() = default;
  virtual ~ConnectionBase() = default;
  ConnectionBase(const ConnectionBase&) = delete;
  ConnectionBase& operator=(const ConnectionBase&) = delete;
  virtual void start() = 0;
  /// Closes the connection as soon as no response is in progress.
  virtual void drain() = 0;
  /// Closes the connection now.
  virtual void abort() = 0;
  /// Writes what waits to be written.
  virtual void flush() = 0;
};

/// Tasks from other threads for the network thread. An engine's step posts one task per answer; those that arrive
/// before the network thread gets to them cost one wakeup and one handler together.
class TaskQueue {
 public:
  using Task = std::function<void()>;

  explicit TaskQueue(asio::io_context& io) : io_(io) {}
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;
  /// Runs `task` on the network thread, after those posted before. Thread-safe.
  void post(Task task);
  /// Destroys the tasks that have not run. From now on post() destroys its task.
  void close();
  std::function<void(const std::string&)> on_problem;  ///< receives the message of an exception that a task throws

 private:
  void run();

  asio::io_context& io_;
  std::mutex mutex_;
  std::vector<Task> tasks_;
  bool closed_ = false;
  std::vector<Task> running_;  ///< keeps its capacity; used by the network thread only
};

/// State shared by all connections of a server.
struct ServerCore {
  ServerOptions options;
  const Policy* policy = nullptr;
  Handler handler;
  ServerHooks hooks;
  asio::io_context io;
  TaskQueue tasks{io};
  std::vector<std::shared_ptr<ConnectionBase>> unflushed;  ///< have bytes to write; see flush_soon()
  bool draining = false;
  std::set<std::shared_ptr<ConnectionBase>> connections;
  std::string id_prefix;  ///< random, so that request ids of two servers differ
  uint64_t last_id = 0;
  int64_t held_bytes = 0;  ///< bytes of the bodies of all requests in progress

  void problem(const std::string& message) const {
    if (hooks.on_problem) hooks.on_problem(message);
  }
  void remove(const std::shared_ptr<ConnectionBase>& connection);
  /// Flushes the connection after the handlers that are already queued, so that their output joins the same system
  /// call.
  void flush_soon(std::shared_ptr<ConnectionBase> connection);
};

/// One client connection: reads a request, passes it to the handler, writes the response, and waits for the next
/// request. A read stays pending during the response, so a disconnect is noticed at once.
template <class Stream>
class Connection final : public ConnectionBase, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(ServerCore& core, Stream stream);
  void start() override;
  void drain() override;
  void abort() override;
  void flush() override;

  // The response to request number `serial`. Calls with an earlier number are ignored.
  void send(uint64_t serial, HttpResponse response);
  void start_response(uint64_t serial, HttpResponse head);
  void write(uint64_t serial, std::string_view chunk);
  void finish(uint64_t serial);
  void on_close(uint64_t serial, std::function<void()> task);
  ServerCore& core() { return core_; }

 private:
  enum class Phase { idle, reading, answering, lingering, closed };
  using Error = boost::system::error_code;

  bool is_answering(uint64_t serial) const { return phase_ == Phase::answering && serial == serial_; }
  void arm(asio::steady_timer& timer, double seconds, void (Connection::*action)());
  void wait_readable();
  void on_readable(const Error& error);
  double seconds_to_read(double seconds) const;
  void read_header();
  void on_header(const Error& error);
  void read_body();
  void hold_body(size_t bytes);
  void refuse_for_memory();
  void dispatch();
  void refuse(const Error& error);
  void describe_request();
  std::string head_text(const HttpResponse& response, bool chunked);
  void flush_later();
  void write_queued();
  void write_rest(size_t from);
  void on_written();
  void complete();
  void linger();
  void ping();
  void log_access(bool complete);
  auto& socket() { return stream_.lowest_layer(); }

  ServerCore& core_;
  Stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<HttpRequest> request_;
  asio::steady_timer deadline_;
  asio::steady_timer write_deadline_;
  asio::steady_timer ping_timer_;
  Phase phase_ = Phase::idle;
  bool watching_ = false;     ///< a read is pending
  bool interrupted_ = false;  ///< the pending read was cancelled
  bool half_closed_ = false;  ///< the client will send nothing more
  uint64_t serial_ = 0;
  int64_t held_bytes_ = 0;  ///< bytes of this request's body
  bool keep_alive_ = true;
  bool body_read_ = false;
  bool chunked_ = false;
  bool streaming_ = false;  ///< start_response was called
  bool final_ = false;      ///< the whole response has been queued
  std::string pending_;     ///< bytes to write next
  std::string in_flight_;   ///< bytes being written
  bool flush_posted_ = false;
  std::chrono::steady_clock::time_point last_write_;  ///< time of the last write of this response
  int status_ = 0;
  int64_t body_bytes_ = 0;
  std::function<void()> close_task_;
};

}  // namespace lamina::serve
