// Sockets over IPv4 and IPv6.
#include "lamina/comm/socket.h"

#include <gtest/gtest.h>

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
