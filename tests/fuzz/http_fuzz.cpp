// Sends any bytes to the HTTP server's connection: it must answer with HTTP or close, and never hang.
#define BOOST_ALL_NO_LIB
#define BOOST_ERROR_CODE_HEADER_ONLY
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "lamina/serve/http/connection.h"

namespace {

using namespace lamina;

constexpr size_t kMaxSent = 32 << 10;  // fits into the socket's buffers, so that one thread can play both sides
constexpr auto kHang = std::chrono::seconds(5);

struct World {
  World() {
    core.options.max_header_bytes = 2 << 10;
    core.options.max_body_bytes = 8 << 10;
    core.policy = &policy;
    core.id_prefix = "fuzz-";
    core.handler = [](const std::shared_ptr<serve::Exchange>& exchange) {
      if (exchange->request().body.size() % 2 == 0)
        return exchange->send({200, exchange->request().body, "text/plain", {}});
      exchange->start({200, "", "text/event-stream", {}});
      exchange->write("data: {}\n\n");
      exchange->finish();
    };
  }
  serve::Policy policy{{}, nullptr};
  serve::ServerCore core;
  serve::Tcp::acceptor acceptor{core.io, {serve::asio::ip::address_v4::loopback(), 0}};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  boost::system::error_code ignored;
  serve::Tcp::socket client(world.core.io);
  client.connect(world.acceptor.local_endpoint());
  const auto connection = std::make_shared<serve::Connection<serve::Tcp::socket>>(world.core, world.acceptor.accept());
  world.core.connections.insert(connection);
  connection->start();
  serve::asio::write(client, serve::asio::buffer(data, std::min(size, kMaxSent)), ignored);
  client.shutdown(serve::Tcp::socket::shutdown_send, ignored);
  world.core.io.restart();
  while (!world.core.connections.empty()) {
    if (world.core.io.run_one_for(kHang) == 0) std::abort();
  }
  std::string received(64 << 10, '\0');
  client.non_blocking(true, ignored);
  received.resize(client.read_some(serve::asio::buffer(received), ignored));
  if (!received.empty() && !received.starts_with("HTTP/1.")) std::abort();
  return 0;
}
