#pragma once

// Internal, as connection.h.
#include "lamina/serve/http/connection.h"
#include "lamina/serve/http/exchange.h"

namespace lamina::serve {

/// A request of a connection. Calls from other threads are posted to the network thread.
template <class Stream>
class LiveExchange final : public Exchange {
 public:
  LiveExchange(std::shared_ptr<Connection<Stream>> connection, std::shared_ptr<HttpRequest> request, uint64_t serial)
      : connection_(std::move(connection)), request_(std::move(request)), serial_(serial) {}
  ~LiveExchange() override {
    // A handler that drops its exchange without an answer. After an answer this does nothing.
    post([c = connection_, s = serial_] {
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
  void write(std::string_view chunk) override {
    if (on_network_thread()) return connection_->write(serial_, chunk);
    post([c = connection_, s = serial_, text = std::string(chunk)] { c->write(s, text); });
  }
  void finish() override {
    if (on_network_thread()) return connection_->finish(serial_);
    post([c = connection_, s = serial_] { c->finish(s); });
  }
  void on_close(std::function<void()> task) override {
    post([c = connection_, s = serial_, t = std::move(task)]() mutable { c->on_close(s, std::move(t)); });
  }
  void post(std::function<void()> task) final { connection_->core().tasks.post(std::move(task)); }

 private:
  bool on_network_thread() const { return connection_->core().io.get_executor().running_in_this_thread(); }

  std::shared_ptr<Connection<Stream>> connection_;
  std::shared_ptr<HttpRequest> request_;
  uint64_t serial_;
};

}  // namespace lamina::serve
