#include "lamina/serve/http/connection.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "lamina/base/error.h"
#include "lamina/serve/http/live_exchange.h"
#include "lamina/serve/http/request_parts.h"

namespace lamina::serve {
namespace {

constexpr size_t kReadBytes = 4096;
constexpr double kLingerSeconds = 2;
constexpr double kBufferedSeconds = 0.1;  // to read a request from the buffer alone
/// Bytes of later requests that are read while one is answered. Beyond it a disconnect is noticed only when writing.
constexpr size_t kMaxEarlyBytes = 65536;
/// Capacity of the output buffer that a connection keeps between two responses.
constexpr size_t kKeptBufferBytes = 16384;

/// The time as a header's value: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[40];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

/// An IPv4 client of an IPv6 socket is named by its IPv4 address.
std::string address_text(const asio::ip::address& address) {
  const bool mapped = address.is_v6() && address.to_v6().is_v4_mapped();
  return (mapped ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()) : address).to_string();
}

template <class Stream>
constexpr bool kIsTls = std::is_same_v<Stream, TlsStream>;

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
  hold_body(0);
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
                            self->buffer_.commit(bytes);
                            self->on_readable(error);
                          });
}

template <class Stream>
void Connection<Stream>::on_readable(const Error& error) {
  const bool interrupted = std::exchange(interrupted_, false);  // by complete(), for a request that came early
  if (error == asio::error::eof && (interrupted || (phase_ == Phase::answering && final_))) {
    half_closed_ = true;  // the client sends nothing more, but may still read
  } else if (error && !(interrupted && error == asio::error::operation_aborted)) {
    return abort();
  }
  if (phase_ == Phase::idle) return read_header();
  if (phase_ == Phase::lingering) buffer_.consume(buffer_.size());
  // While answering, a request that came early is read after the response.
  if (!half_closed_ && buffer_.size() < kMaxEarlyBytes) wait_readable();
}

/// After the client has closed its sending side, only requests that are in the buffer already can be read. Asio reports
/// the end once; a later read would wait until the deadline.
template <class Stream>
double Connection<Stream>::seconds_to_read(double seconds) const {
  return half_closed_ ? std::min(seconds, kBufferedSeconds) : seconds;
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
  arm(deadline_, seconds_to_read(core_.options.header_seconds), &Connection::abort);
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
  request_->path = path_of(std::string(message.target()));
  request_->query = query_of(std::string(message.target()));
  for (const auto& field : message) {
    request_->headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  const std::string_view id = header_of(request_->headers, "x-request-id");
  request_->id = is_plain_id(id) ? std::string(id) : str("req-", core_.id_prefix, ++core_.last_id);
  Error ignored;
  request_->peer = address_text(socket().remote_endpoint(ignored).address());
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
  arm(deadline_, seconds_to_read(core_.options.body_seconds), &Connection::abort);
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
  parser_->eager(true);  // as much of the body as has arrived
  http::async_read_some(stream_, buffer_, *parser_, [self = this->shared_from_this()](const Error& failed, size_t) {
    if (self->phase_ == Phase::closed) return;
    if (failed) return self->refuse(failed);
    self->hold_body(self->parser_->get().body().size());
    if (self->core_.held_bytes > self->core_.options.max_held_bytes) return self->refuse_for_memory();
    if (!self->parser_->is_done()) return self->read_body();
    self->body_read_ = true;
    self->request_->body = std::move(self->parser_->get().body());
    self->dispatch();
  });
}

/// Counts the bytes of this connection's request among those that the server holds.
template <class Stream>
void Connection<Stream>::hold_body(size_t bytes) {
  core_.held_bytes += static_cast<int64_t>(bytes) - std::exchange(held_bytes_, static_cast<int64_t>(bytes));
}

/// The bodies that are being read or answered take too much memory together.
template <class Stream>
void Connection<Stream>::refuse_for_memory() {
  parser_.reset();
  hold_body(0);
  phase_ = Phase::answering;
  keep_alive_ = false;
  send(serial_, error_response(503, "the server holds too many long requests; try again later"));
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
  if (buffer_.size() < kMaxEarlyBytes) wait_readable();
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
  add("Date", date_text());
  add("x-request-id", request_->id);
  add("request-id", request_->id);  // as Anthropic's clients read it
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
    char size[16];
    const auto end = std::to_chars(size, size + sizeof size, chunk.size(), 16).ptr;
    pending_.append(size, end).append("\r\n").append(chunk).append("\r\n");
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

template <class Stream>
void Connection<Stream>::flush_later() {
  if (flush_posted_ || !in_flight_.empty()) return;
  flush_posted_ = true;
  core_.flush_soon(this->shared_from_this());
}

template <class Stream>
void Connection<Stream>::flush() {
  flush_posted_ = false;
  if (phase_ == Phase::answering && in_flight_.empty()) write_queued();
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
  write_rest(written);
}

/// Writes from the byte `from` on. A client that reads slowly is served as long as it reads.
template <class Stream>
void Connection<Stream>::write_rest(size_t from) {
  arm(write_deadline_, core_.options.write_seconds, &Connection::abort);
  stream_.async_write_some(asio::buffer(in_flight_) + from,
                           [self = this->shared_from_this(), from](const Error& error, size_t bytes) {
                             if (self->phase_ == Phase::closed) return;
                             if (error) return self->abort();
                             if (from + bytes < self->in_flight_.size()) return self->write_rest(from + bytes);
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
  hold_body(0);
  ping_timer_.cancel();
  for (std::string* buffer : {&pending_, &in_flight_}) {
    if (buffer->capacity() > kKeptBufferBytes) *buffer = {};
  }
  if (!keep_alive_ || core_.draining || (half_closed_ && buffer_.size() == 0)) return linger();
  phase_ = Phase::idle;
  if (buffer_.size() == 0 || !watching_) return read_header();
  Error ignored;
  interrupted_ = true;  // on_readable() then reads the request that came early
  socket().cancel(ignored);
}

/// Closes the connection in two steps: shuts down the sending side and discards incoming data. The client can then read
/// the response before it sees a reset.
template <class Stream>
void Connection<Stream>::linger() {
  phase_ = Phase::lingering;
  if constexpr (kIsTls<Stream>) {  // without close_notify the client cannot tell the end from a cut
    stream_.async_shutdown([self = this->shared_from_this()](const Error&) { self->abort(); });
  } else {
    Error error;
    socket().shutdown(Tcp::socket::shutdown_send, error);
    if (error) return abort();
  }
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
