#include "lamina/serve/http/server.h"

#include <csignal>
#include <random>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/serve/http/connection.h"

namespace lamina::serve {
namespace {

constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

std::string random_prefix() {
  std::random_device random;
  char text[20];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(random()));
  return std::string(text) + "-";
}

Tcp::endpoint resolve(asio::io_context& io, const std::string& host, int port) {
  boost::system::error_code error;
  Tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(port), Tcp::resolver::passive, error);
  LAMINA_CHECK(!error && !found.empty(), "--host ", host, ": ", error.message(), "; give an address of this machine");
  return found.begin()->endpoint();
}

}  // namespace

void TaskQueue::post(Task task) {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;  // the task is destroyed after the lock is released
    wakes = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (wakes) asio::post(io_, [this] { run(); });
}

void TaskQueue::run() {
  {
    const std::lock_guard lock(mutex_);
    std::swap(tasks_, running_);
  }
  for (Task& task : running_) {
    try {
      std::exchange(task, {})();
    } catch (const std::exception& error) {  // the tasks of other requests go on
      if (on_problem) on_problem(error.what());
    }
  }
  running_.clear();
}

void TaskQueue::close() {
  std::vector<Task> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  std::swap(tasks_, dropped);
}

void ServerCore::flush_soon(std::shared_ptr<ConnectionBase> connection) {
  unflushed.push_back(std::move(connection));
  if (unflushed.size() > 1) return;
  asio::post(io, [this] {
    for (const auto& one : std::exchange(unflushed, {})) one->flush();
  });
}

void ServerCore::remove(const std::shared_ptr<ConnectionBase>& connection) {
  connections.erase(connection);
  if (draining && connections.empty()) io.stop();
}

struct Server::Impl {
  ServerCore core;
  std::optional<asio::ssl::context> tls;
  Tcp::acceptor acceptor{core.io};
  asio::signal_set signals{core.io};
  asio::steady_timer retry{core.io};
  int port = 0;
  bool cut_short = false;  ///< a second signal ended running requests

  void listen() {
    const ServerOptions& options = core.options;
    const Tcp::endpoint endpoint = resolve(core.io, options.host, options.port);
    boost::system::error_code error;
    acceptor.open(endpoint.protocol());
    acceptor.set_option(asio::socket_base::reuse_address(true));
    if (endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(false), error);  // "::" takes IPv4 as well
    acceptor.bind(endpoint, error);
    LAMINA_CHECK(error != asio::error::address_in_use, "port ", options.port, " of ", options.host,
                 " is in use; stop the other program, or choose another port with --port (0: any free one)");
    LAMINA_CHECK(!error, "cannot listen at ", options.host, ":", options.port, ": ", error.message());
    acceptor.listen(asio::socket_base::max_listen_connections, error);
    LAMINA_CHECK(!error, "cannot listen at ", options.host, ":", options.port, ": ", error.message());
    port = acceptor.local_endpoint().port();
  }

  void read_certificate() {
    const ServerOptions& options = core.options;
    LAMINA_CHECK(options.certificate.empty() == options.key.empty(),
                 "TLS needs a certificate and its key; give both "
                 "--cert and --key");
    if (options.certificate.empty()) return;
    asio::ssl::context fresh(asio::ssl::context::tls_server);
    fresh.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                      asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
    boost::system::error_code error;
    fresh.use_certificate_chain_file(options.certificate, error);
    LAMINA_CHECK(!error, "--cert ", options.certificate, ": ", error.message(), "; expected a PEM certificate chain");
    fresh.use_private_key_file(options.key, asio::ssl::context::pem, error);
    LAMINA_CHECK(!error, "--key ", options.key, ": ", error.message(), "; expected the certificate's PEM key");
    tls.emplace(std::move(fresh));  // connections keep the certificate they began with
  }

  void accept() {
    acceptor.async_accept([this](const boost::system::error_code& error, Tcp::socket socket) {
      if (core.draining) return;
      if (error) {  // for example too many open files: try again later
        retry.expires_after(kAcceptRetry);
        retry.async_wait([this](const boost::system::error_code& failed) {
          if (!failed) accept();
        });
        return;
      }
      if (static_cast<int64_t>(core.connections.size()) < core.options.max_connections) serve(std::move(socket));
      accept();
    });
  }

  void serve(Tcp::socket socket) {
    std::shared_ptr<ConnectionBase> connection;
    if (tls) {
      connection = std::make_shared<Connection<TlsStream>>(core, TlsStream(std::move(socket), *tls));
    } else {
      connection = std::make_shared<Connection<Tcp::socket>>(core, std::move(socket));
    }
    core.connections.insert(connection);
    connection->start();
  }

  void wait_for_signal() {
    signals.async_wait([this](const boost::system::error_code& error, int number) {
      if (error) return;
      if (number == SIGHUP) {
        if (core.hooks.on_hangup) core.hooks.on_hangup();
      } else if (core.draining) {
        stop();
      } else {
        drain();
      }
      wait_for_signal();
    });
  }

  void drain() {
    if (core.draining) return;
    core.draining = true;
    if (core.hooks.on_drain) core.hooks.on_drain();
    boost::system::error_code ignored;
    acceptor.close(ignored);
    const auto connections = core.connections;  // a copy, because drain() removes idle connections from the set
    for (const auto& connection : connections) connection->drain();
    if (core.connections.empty()) core.io.stop();
  }

  void stop() {
    cut_short = !core.connections.empty();
    const auto connections = core.connections;
    for (const auto& connection : connections) connection->abort();
    core.io.stop();
  }
};

Server::Server(ServerOptions options, const Policy& policy, Handler handler, ServerHooks hooks)
    : impl_(std::make_unique<Impl>()) {
  impl_->core.options = std::move(options);
  impl_->core.policy = &policy;
  impl_->core.handler = std::move(handler);
  impl_->core.hooks = std::move(hooks);
  impl_->core.id_prefix = random_prefix();
  impl_->core.tasks.on_problem = [core = &impl_->core](const std::string& message) {
    core->problem(str("network thread: ", message));
  };
  impl_->read_certificate();
  impl_->listen();
}

Server::~Server() {
  impl_->core.draining = true;
  const auto connections = impl_->core.connections;
  for (const auto& connection : connections) connection->abort();
  impl_->core.tasks.close();
}

int Server::port() const { return impl_->port; }

std::string Server::address() const {
  const std::string& host = impl_->core.options.host;
  return str(impl_->tls ? "https" : "http", "://", host.find(':') == std::string::npos ? host : "[" + host + "]", ":",
             impl_->port);
}

bool Server::run() {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) impl_->signals.add(number);
  impl_->wait_for_signal();
  impl_->accept();
  while (!impl_->core.io.stopped()) {
    try {
      impl_->core.io.run();
    } catch (const std::exception& error) {
      impl_->core.problem(str("network thread: ", error.what()));
    }
  }
  return !impl_->cut_short;
}

bool Server::reload_certificate() {
  impl_->read_certificate();
  return impl_->tls.has_value();
}

void Server::drain() {
  asio::post(impl_->core.io, [this] { impl_->drain(); });
}

void Server::stop() {
  asio::post(impl_->core.io, [this] { impl_->stop(); });
}

}  // namespace lamina::serve
