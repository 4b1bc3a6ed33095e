// Sockets over IPv4 and IPv6.
#include "lamina/comm/socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

#include "comm/ranks.h"

namespace lamina::testing {
namespace {

using comm::Clock;
using comm::Socket;

Clock::time_point soon() { return Clock::now() + std::chrono::milliseconds(500); }

bool has_ipv6() {
  try {
    return Socket::listen(0, "::1").is_open();
  } catch (const comm::CommError&) {
    return false;
  }
}

bool connects(const std::string& address, const Socket& door) {
  try {
    const Socket guest = Socket::connect(address, door.port(), soon());
    const Socket host = door.accept(soon());
    const char sent = 'x';
    char got = 0;
    return guest.send(&sent, 1, soon()) && host.receive(&got, 1, soon()) && got == sent;
  } catch (const comm::CommError&) {
    return false;
  }
}

TEST(Socket, ListensForBothProtocols) {
  const Socket door = Socket::listen(0, "node1");
  EXPECT_TRUE(connects("127.0.0.1", door));
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_TRUE(connects("::1", door));
}

TEST(Socket, ALoopbackHostIsReachedOnlyThere) {
  EXPECT_FALSE(connects("127.0.0.2", Socket::listen(0, "127.0.0.1")));
  EXPECT_TRUE(connects("localhost", Socket::listen(0, "localhost")));
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
  const Socket door = Socket::listen(0, "::1");
  EXPECT_EQ(door.own_address(), "::1");
  EXPECT_TRUE(connects("::1", door));
  EXPECT_FALSE(connects("127.0.0.1", door));
}

TEST(Socket, APortInUseIsAnError) {
  const Socket door = Socket::listen(0, "127.0.0.1");
  EXPECT_THROW(Socket::listen(door.port(), "127.0.0.1"), comm::CommError);
  EXPECT_THROW(Socket::listen(door.port(), "node1"), comm::CommError);
}

/// A socket whose queue of connections is full: the kernel drops further ones, like a host that does not answer.
TEST(Socket, AHostThatDoesNotAnswerIsGivenUpAtTheTimeLimit) {
  const Socket silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(silent.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(silent.descriptor(), 0), 0);
  address.sin_port = htons(static_cast<uint16_t>(silent.port()));
  std::vector<Socket> queue(4);
  for (Socket& socket : queue) {
    socket = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  const Clock::time_point began = Clock::now();
  EXPECT_THROW(Socket::connect("127.0.0.1", silent.port(), soon()), comm::CommError);
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
}

TEST(Socket, RanksMeetOverIpv6) {
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
  const auto errors = run_tcp_ranks(
      3,
      [](comm::Communicator& c) {
        EXPECT_EQ(comm::gather(c, {c.rank() * 1.0}, "ranks"), (std::vector{0.0, 1.0, 2.0}));
      },
      60, 60, "::1");
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace lamina::testing
