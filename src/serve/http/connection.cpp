#include "lamina/serve/http/connection.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "lamina/base/error.h"

namespace lamina::serve {
namespace {

constexpr size_t kReadBytes = 4096;
constexpr double kLingerSeconds = 2;
/// Capacity of the output buffer that a connection keeps between two responses.
constexpr size_t kKeptBufferBytes = 16384;

template <class Stream>
constexpr bool kIsTls = std::is_same_v<Stream, TlsStream>;

bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

template <class Stream>
class LiveExchange final : public Exchange {
 public:
  LiveExchange(std::shared_ptr<Connection<Stream>> connection, std::shared_ptr<HttpRequest> request, uint64_t serial)
      : connection_(std::move(connection)), request_(std::move(request)), serial_(serial) {}
  ~LiveExchange() override {
    // The handler may drop its exchange without an answer; then the client gets a 500. After an answer this has no
    // effect.
    asio::post(connection_->core().io, [c = connection_, s = serial_] {
      c->send(s, error_response(500, "the request was dropped without an answer (internal error, please report it)"));
    });
  }

  const HttpRequest& request() const override { return *request_; }
  void send(HttpResponse response) override {
    if (on_network_thread()) return connection_->send(serial_, std::move(response));
    post([c = connection_, s = serial_, r = std::move(response)]() mutable { c->send(s, std::move(r)); });
  }
  void start(HttpResponse head) override {
    if (on_network_thread()) return connection_->start_response(serial_, std::move(head));
    post([c = connection_, s = serial_, r = std::move(head)]() mutable { c->start_response(s, std::move(r)); });
  }
  void write(std::string chunk) override {
    if (on_network_thread()) return connection_->write(serial_, chunk);
    post([c = connection_, s = serial_, text = std::move(chunk)] { c->write(s, text); });
  }
  void finish() override {
    if (on_network_thread()) return connection_->finish(serial_);
    post([c = connection_, s = serial_] { c->finish(s); });
  }
  void on_close(std::function<void()> task) override {
    post([c = connection_, s = serial_, t = std::move(task)]() mutable { c->on_close(s, std::move(t)); });
  }
  void post(std::function<void()> task) override { asio::post(connection_->core().io, std::move(task)); }

 private:
  bool on_network_thread() const { return connection_->core().io.get_executor().running_in_this_thread(); }

  std::shared_ptr<Connection<Stream>> connection_;
  std::shared_ptr<HttpRequest> request_;
  uint64_t serial_;
};

}  // namespace

template <class Stream>
Connection<Stream>::Connection(ServerCore& core, Stream stream)
    : core_(core), stream_(std::move(stream)), deadline_(core.io), write_deadline_(core.io), ping_timer_(core.io) {}

template <class Stream>
void Connection<Stream>::arm(asio::steady_timer& timer, double seconds, void (Connection::*action)()) {
  timer.expires_after(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
  timer.async_wait([self = this->shared_from_this(), &timer, action](const Error& error) {
    // If the timer was set again meanwhile, its expiry is later and the action must not run.
    if (!error && timer.expiry() <= std::chrono::steady_clock::now()) ((*self).*action)();
  });
}

template <class Stream>
void Connection<Stream>::start() {
  Error ignored;
  socket().set_option(Tcp::no_delay(true), ignored);
  socket().non_blocking(true, ignored);
  if constexpr (kIsTls<Stream>) {
    arm(deadline_, core_.options.header_seconds, &Connection::abort);
    stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](const Error& error) {
      if (error) return self->abort();
      self->read_header();
    });
  } else {
    read_header();
  }
}

template <class Stream>
void Connection<Stream>::drain() {
  keep_alive_ = false;
  if (phase_ == Phase::idle) abort();
}

template <class Stream>
void Connection<Stream>::abort() {
  if (phase_ == Phase::closed) return;
  const bool answering = phase_ == Phase::answering;
  phase_ = Phase::closed;
  Error ignored;
  socket().close(ignored);
  deadline_.cancel();
  write_deadline_.cancel();
  ping_timer_.cancel();
  if (answering) {
    log_access(false);
    if (const auto task = std::exchange(close_task_, {})) task();
  }
  core_.remove(this->shared_from_this());
}

/// Keeps one read pending, to receive the next request and to notice a disconnect.
template <class Stream>
void Connection<Stream>::wait_readable() {
  if (watching_ || phase_ == Phase::closed) return;
  watching_ = true;
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = this->shared_from_this()](const Error& error, size_t bytes) {
                            self->watching_ = false;
                            if (self->phase_ == Phase::closed) return;
                            if (error) return self->abort();
                            self->buffer_.commit(bytes);
                            if (self->phase_ == Phase::idle) self->read_header();
                            if (self->phase_ == Phase::lingering) {
                              self->buffer_.consume(self->buffer_.size());
                              self->wait_readable();
                            }
                            // Phase answering: the client sent its next request early. It is read after the response.
                          });
}

template <class Stream>
void Connection<Stream>::read_header() {
  if (buffer_.size() == 0) {
    if (core_.draining) return abort();
    phase_ = Phase::idle;
    arm(deadline_, core_.options.idle_seconds, &Connection::abort);
    return wait_readable();
  }
  phase_ = Phase::reading;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(core_.options.max_header_bytes));
  parser_->body_limit(static_cast<uint64_t>(core_.options.max_body_bytes));
  arm(deadline_, core_.options.header_seconds, &Connection::abort);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = this->shared_from_this()](const Error& error, size_t) { self->on_header(error); });
}

/// Fills request_ from the parsed headers.
template <class Stream>
void Connection<Stream>::describe_request() {
  request_ = std::make_shared<HttpRequest>();
  request_->received = std::chrono::steady_clock::now();
  const auto& message = parser_->get();
  request_->method = std::string(message.method_string());
  const std::string target(message.target());
  request_->path = target.substr(0, target.find('?'));
  for (const auto& field : message) {
    request_->headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  const std::string_view id = header_of(request_->headers, "x-request-id");
  request_->id = is_plain_id(id) ? std::string(id) : str("req-", core_.id_prefix, ++core_.last_id);
  Error ignored;
  const auto peer = socket().remote_endpoint(ignored);
  request_->peer = peer.address().to_string(ignored);
  keep_alive_ = message.keep_alive() && !core_.draining;
  ++serial_;
  status_ = 0;
  body_bytes_ = 0;
  chunked_ = message.version() >= 11;
  streaming_ = final_ = false;
}

template <class Stream>
void Connection<Stream>::on_header(const Error& error) {
  if (phase_ == Phase::closed) return;
  if (error) return refuse(error);
  describe_request();
  body_read_ = parser_->is_done();
  if (auto response = core_.policy->answer(*request_)) {
    phase_ = Phase::answering;
    return send(serial_, std::move(*response));
  }
  if (body_read_) return dispatch();
  arm(deadline_, core_.options.body_seconds, &Connection::abort);
  if (header_of(request_->headers, "expect").empty()) return read_body();
  in_flight_ = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(stream_, asio::buffer(in_flight_), [self = this->shared_from_this()](const Error& failed, size_t) {
    if (failed) return self->abort();
    self->in_flight_.clear();
    self->read_body();
  });
}

template <class Stream>
void Connection<Stream>::read_body() {
  http::async_read(stream_, buffer_, *parser_, [self = this->shared_from_this()](const Error& failed, size_t) {
    if (self->phase_ == Phase::closed) return;
    if (failed) return self->refuse(failed);
    self->body_read_ = true;
    self->request_->body = std::move(self->parser_->get().body());
    self->dispatch();
  });
}

/// Answers a request that could not be parsed.
template <class Stream>
void Connection<Stream>::refuse(const Error& error) {
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error.category() != make_error_code(http::error::bad_method).category()) {
    return abort();
  }
  const bool no_headers = phase_ == Phase::reading && (!request_ || !parser_->is_header_done());
  if (no_headers) describe_request();
  phase_ = Phase::answering;
  keep_alive_ = body_read_ = false;
  if (error == http::error::header_limit) {
    send(serial_, error_response(431, str("the headers are longer than ", core_.options.max_header_bytes, " bytes")));
  } else if (error == http::error::body_limit) {
    send(serial_, error_response(413, str("the body is longer than ", core_.options.max_body_bytes,
                                          " bytes; send less, or raise --max-body")));
  } else {
    send(serial_, error_response(400, str("not a valid HTTP/1.1 request: ", error.message())));
  }
}

template <class Stream>
void Connection<Stream>::dispatch() {
  phase_ = Phase::answering;
  deadline_.cancel();
  if (buffer_.size() == 0) wait_readable();
  auto exchange = std::make_shared<LiveExchange<Stream>>(this->shared_from_this(), request_, serial_);
  try {
    core_.handler(exchange);
  } catch (const std::exception& error) {
    core_.problem(str(request_->method, " ", request_->path, ": ", error.what()));
    exchange->send(error_response(500, "internal error, please report it"));
  }
}

template <class Stream>
std::string Connection<Stream>::head_text(const HttpResponse& response, bool chunked) {
  status_ = response.status;
  if (!body_read_) keep_alive_ = false;  // otherwise the unread body would be parsed as the next request
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  std::string head = str("HTTP/1.1 ", response.status, " ", std::string(reason), "\r\n");
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!response.type.empty()) add("Content-Type", response.type);
  if (chunked) add("Transfer-Encoding", "chunked");
  if (!streaming_ && response.status != 204) add("Content-Length", std::to_string(response.body.size()));
  add("Connection", keep_alive_ ? "keep-alive" : "close");
  add("x-request-id", request_->id);
  add("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers) add(name, value);
  for (const auto& [name, value] : core_.policy->headers_for(*request_)) add(name, value);
  return head + "\r\n";
}

template <class Stream>
void Connection<Stream>::send(uint64_t serial, HttpResponse response) {
  if (!is_answering(serial) || streaming_ || final_) return;
  pending_ += head_text(response, false);
  body_bytes_ = static_cast<int64_t>(response.body.size());
  if (request_->method != "HEAD") pending_ += response.body;
  final_ = true;
  flush_later();
}

template <class Stream>
void Connection<Stream>::start_response(uint64_t serial, HttpResponse head) {
  if (!is_answering(serial) || streaming_ || final_) return;
  streaming_ = true;
  if (!chunked_) keep_alive_ = false;
  pending_ += head_text(head, chunked_);
  last_write_ = std::chrono::steady_clock::now();
  arm(ping_timer_, core_.options.ping_seconds, &Connection::ping);
  flush_later();
}

template <class Stream>
void Connection<Stream>::write(uint64_t serial, std::string_view chunk) {
  if (!is_answering(serial) || !streaming_ || final_ || chunk.empty()) return;
  body_bytes_ += static_cast<int64_t>(chunk.size());
  if (chunked_) {
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", chunk.size());
    pending_.append(size).append(chunk).append("\r\n");
  } else {
    pending_ += chunk;
  }
  last_write_ = std::chrono::steady_clock::now();
  if (pending_.size() + in_flight_.size() > static_cast<size_t>(core_.options.max_unsent_bytes)) return abort();
  flush_later();
}

template <class Stream>
void Connection<Stream>::finish(uint64_t serial) {
  if (!is_answering(serial) || !streaming_ || final_) return;
  final_ = true;
  if (chunked_) pending_ += "0\r\n\r\n";
  flush_later();
}

template <class Stream>
void Connection<Stream>::on_close(uint64_t serial, std::function<void()> task) {
  if (is_answering(serial)) {
    if (!final_) close_task_ = std::move(task);
  } else if (phase_ == Phase::closed && serial == serial_ && !final_) {
    task();
  }
}

/// Sends an event-stream comment if nothing was written for a while, so that proxies and clients keep the connection
/// open.
template <class Stream>
void Connection<Stream>::ping() {
  if (phase_ != Phase::answering || !streaming_ || final_) return;
  const std::chrono::duration<double> silence = std::chrono::steady_clock::now() - last_write_;
  double left = core_.options.ping_seconds - silence.count();
  if (left <= 0) {
    left = core_.options.ping_seconds;
    if (in_flight_.empty()) write(serial_, ": ping\n\n");
  }
  if (phase_ == Phase::answering) arm(ping_timer_, left, &Connection::ping);
}

/// Writes after the handlers that are already queued, so that their output joins the same system call.
template <class Stream>
void Connection<Stream>::flush_later() {
  if (flush_posted_ || !in_flight_.empty()) return;
  flush_posted_ = true;
  asio::post(core_.io, [self = this->shared_from_this()] {
    self->flush_posted_ = false;
    if (self->phase_ == Phase::answering && self->in_flight_.empty()) self->write_queued();
  });
}

/// Writes the pending bytes: what the socket accepts now, and the rest asynchronously.
template <class Stream>
void Connection<Stream>::write_queued() {
  std::swap(in_flight_, pending_);
  size_t written = 0;
  if constexpr (!kIsTls<Stream>) {
    Error error;
    if (!in_flight_.empty()) written = stream_.write_some(asio::buffer(in_flight_), error);
    if (error && error != asio::error::would_block && error != asio::error::try_again) return abort();
  }
  if (written == in_flight_.size()) return on_written();
  arm(write_deadline_, core_.options.write_seconds, &Connection::abort);
  asio::async_write(stream_, asio::buffer(in_flight_) + written,
                    [self = this->shared_from_this()](const Error& error, size_t) {
                      if (self->phase_ == Phase::closed) return;
                      if (error) return self->abort();
                      self->write_deadline_.cancel();
                      self->on_written();
                    });
}

template <class Stream>
void Connection<Stream>::on_written() {
  in_flight_.clear();
  if (!pending_.empty()) return flush_later();
  if (final_) complete();
}

/// Called when the response is written: waits for the next request, or closes.
template <class Stream>
void Connection<Stream>::complete() {
  log_access(true);
  close_task_ = {};
  request_.reset();
  ping_timer_.cancel();
  for (std::string* buffer : {&pending_, &in_flight_}) {
    if (buffer->capacity() > kKeptBufferBytes) *buffer = {};
  }
  if (!keep_alive_ || core_.draining) return linger();
  phase_ = Phase::idle;
  if (buffer_.size() > 0) return read_header();
  arm(deadline_, core_.options.idle_seconds, &Connection::abort);
  wait_readable();
}

/// Closes the connection in two steps: shuts down the sending side and discards incoming data. The client can then read
/// the response before it sees a reset.
template <class Stream>
void Connection<Stream>::linger() {
  phase_ = Phase::lingering;
  Error error;
  socket().shutdown(Tcp::socket::shutdown_send, error);
  if (error) return abort();
  arm(deadline_, kLingerSeconds, &Connection::abort);
  buffer_.consume(buffer_.size());
  wait_readable();
}

template <class Stream>
void Connection<Stream>::log_access(bool complete) {
  if (!core_.hooks.on_access || !request_) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - request_->received).count();
  core_.hooks.on_access(
      {request_->id, request_->peer, request_->method, request_->path, status_, body_bytes_, seconds, complete});
}

template class Connection<Tcp::socket>;
template class Connection<TlsStream>;

}  // namespace lamina::serve
