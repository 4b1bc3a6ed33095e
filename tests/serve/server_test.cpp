#include "lamina/serve/http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "lamina/base/error.h"

namespace lamina::serve {
namespace {

using std::chrono::milliseconds;

/// A server on a free port with its network thread.
class RunningServer {
 public:
  RunningServer(ServerOptions options, Handler handler)
      : server_(with_free_port(std::move(options)), policy_, std::move(handler), hooks()),
        thread_([this] { server_.run(); }) {}
  ~RunningServer() {
    server_.stop();
    thread_.join();
  }

  int port() const { return server_.port(); }
  /// Waits for a line of the access log.
  AccessRecord next_record() {
    std::unique_lock lock(mutex_);
    LAMINA_CHECK(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return !records_.empty(); }), "no record");
    AccessRecord record = records_.front();
    records_.erase(records_.begin());
    return record;
  }

 private:
  static ServerOptions with_free_port(ServerOptions options) {
    options.port = 0;
    return options;
  }
  ServerHooks hooks() {
    ServerHooks made;
    made.on_access = [this](const AccessRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
      changed_.notify_all();
    };
    return made;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<AccessRecord> records_;
  Policy policy_{{}, nullptr};
  Server server_;
  std::thread thread_;
};

class Client {
 public:
  explicit Client(const RunningServer& server, int receive_buffer = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const timeval patience{20, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    LAMINA_CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "cannot connect");
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& text) {
    LAMINA_CHECK(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()), "send");
  }
  void half_close() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  /// At most `most` bytes; empty at the end.
  std::string read(size_t most) {
    std::string text(most, '\0');
    const ssize_t count = ::recv(socket_, text.data(), most, 0);
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return text;
  }
  std::string read_all() {
    std::string all;
    for (std::string part = read(65536); !part.empty(); part = read(65536)) all += part;
    return all;
  }

 private:
  int socket_;
};

std::string get(const std::string& path, bool last = false) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + (last ? "Connection: close\r\n\r\n" : "\r\n");
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Answers with the path of the request.
void echo_path(const std::shared_ptr<Exchange>& exchange) {
  exchange->send({200, "[" + exchange->request().path + "]", "text/plain", {}});
}

constexpr size_t kLongBody = size_t{24} << 20;

void send_long_body(const std::shared_ptr<Exchange>& exchange) {
  exchange->send({200, std::string(kLongBody, 'x'), "text/plain", {}});
}

TEST(serve_server, a_slow_reader_is_served_as_long_as_it_reads) {
  ServerOptions options;
  options.write_seconds = 2;
  RunningServer server(options, send_long_body);
  Client client(server, 65536);
  client.send(get("/", true));
  const auto began = std::chrono::steady_clock::now();
  size_t bytes = 0;
  size_t pause = 0;
  for (std::string part = client.read(65536); !part.empty(); part = client.read(65536)) {
    bytes += part.size();
    if (bytes / (kLongBody / 40) > pause) {
      ++pause;
      std::this_thread::sleep_for(milliseconds(100));
    }
  }
  EXPECT_GT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));  // otherwise the reader was too fast
  EXPECT_GT(bytes, kLongBody);
  EXPECT_TRUE(server.next_record().complete);
}

TEST(serve_server, a_client_that_does_not_read_is_cut_off) {
  ServerOptions options;
  options.write_seconds = 0.2;
  RunningServer server(options, send_long_body);
  Client client(server, 65536);
  client.send(get("/"));
  EXPECT_FALSE(server.next_record().complete);
}

TEST(serve_server, long_bodies_share_a_limit) {
  ServerOptions options;
  options.max_held_bytes = 1 << 20;
  RunningServer server(options, echo_path);
  const std::string head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 700000\r\n\r\n";
  const std::string most(600000, 'x'), rest(100000, 'x');
  Client first(server), second(server);
  first.send(head + most);
  second.send(head + most);
  // Whichever is read later exceeds the limit together with the other one.
  const AccessRecord refused = server.next_record();
  EXPECT_EQ(refused.status, 503);
  const auto finish = [&](Client& client) {
    try {
      client.send(rest);
    } catch (const Error&) {  // the refused one may be closed already; its response can still be read
    }
    return client.read(4096);
  };
  const std::string one = finish(first), other = finish(second);
  EXPECT_NE(one.starts_with("HTTP/1.1 200 "), other.starts_with("HTTP/1.1 200 ")) << one << other;
  EXPECT_NE(one.starts_with("HTTP/1.1 503 "), other.starts_with("HTTP/1.1 503 ")) << one << other;
  Client third(server);
  third.send(head + most);
  EXPECT_TRUE(finish(third).starts_with("HTTP/1.1 200 ")) << "the memory was not released";
}

TEST(serve_server, a_disconnect_is_seen_after_early_bytes) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Exchange>> held;
  bool gone = false;
  RunningServer server({}, [&](const std::shared_ptr<Exchange>& exchange) {
    const std::lock_guard lock(mutex);
    held.push_back(exchange);
    exchange->on_close([&] {
      const std::lock_guard inner(mutex);
      gone = true;
      changed.notify_all();
    });
    changed.notify_all();
  });
  Client client(server);
  client.send(get("/") + "\r\n");  // some clients end a body with an empty line
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return !held.empty(); }));
  client.close();
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return gone; }));
  held.clear();
}

TEST(serve_server, a_half_closed_client_gets_its_responses) {
  RunningServer server({}, echo_path);
  for (int i = 0; i < 50; ++i) {
    Client client(server);
    client.send(get("/a") + get("/b"));
    client.half_close();
    const std::string answer = client.read_all();
    EXPECT_EQ(count_of(answer, "[/a]"), 1U) << answer;
    EXPECT_EQ(count_of(answer, "[/b]"), 1U) << answer;
  }
}

/// Chunks that another thread writes arrive in their order, also after a task that throws.
TEST(serve_server, tasks_of_another_thread_run_in_order) {
  constexpr int kChunks = 2000;
  std::thread writer;
  RunningServer server({}, [&](const std::shared_ptr<Exchange>& exchange) {
    writer = std::thread([exchange] {
      exchange->start({200, "", "text/plain", {}});
      for (int i = 0; i < kChunks; ++i) {
        if (i % 7 == 0) exchange->post([] { throw Error("a task that fails"); });
        exchange->write(str("<", i, ">"));
        if (i % 100 == 0) std::this_thread::sleep_for(milliseconds(1));
      }
      exchange->finish();
    });
  });
  Client client(server);
  client.send(get("/", true));
  const std::string received = client.read_all();
  writer.join();
  size_t at = 0;
  for (int i = 0; i < kChunks && at != std::string::npos; ++i) at = received.find(str("<", i, ">"), at);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(count_of(received, "<"), static_cast<size_t>(kChunks));
  EXPECT_TRUE(server.next_record().complete);
}

/// Tasks that wait when a server ends are dropped.
TEST(serve_server, a_server_ends_with_tasks_that_wait) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> stop{false};
    std::thread writer;
    {
      RunningServer server({}, [&](const std::shared_ptr<Exchange>& exchange) {
        writer = std::thread([&stop, exchange] {
          exchange->start({200, "", "text/plain", {}});
          while (!stop) exchange->write("x");
        });
      });
      Client client(server);
      client.send(get("/"));
      EXPECT_FALSE(client.read(1).empty());
      stop = true;
      writer.join();
    }
  }
}

TEST(serve_server, requests_that_come_early_are_answered_in_order) {
  std::vector<std::thread> threads;  // only the network thread adds one
  RunningServer server({}, [&](const std::shared_ptr<Exchange>& exchange) {
    threads.emplace_back([exchange] {
      std::this_thread::sleep_for(milliseconds(5));
      echo_path(exchange);
    });
  });
  for (int i = 0; i < 20; ++i) {
    Client client(server);
    client.send(get("/1") + get("/2").substr(0, 9));
    std::this_thread::sleep_for(milliseconds(i % 4 * 2));
    client.send(get("/2").substr(9) + get("http://other.example/3?x=1", true));
    const std::string answer = client.read_all();
    const size_t first = answer.find("[/1]"), second = answer.find("[/2]"), third = answer.find("[/3]");
    EXPECT_TRUE(first < second && second < third && third != std::string::npos) << answer;
  }
  for (std::thread& thread : threads) thread.join();  // the clients use the server, so they must end first
}

}  // namespace
}  // namespace lamina::serve
