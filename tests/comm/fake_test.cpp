// Rehearsed ranks: bytes per label, disagreements and deadlocks.
#include <gtest/gtest.h>

#include "lamina/comm/fake.h"

namespace lamina::testing {
namespace {

using comm::Communicator;
using comm::FakeWorld;

Tensor meta(int64_t count) { return Tensor::empty({count}, DType::f32, Device::meta()); }

/// Runs a program for every rank and returns what check() says.
std::string verdict(int ranks, const std::function<void(Communicator&)>& program) {
  FakeWorld world(ranks);
  try {
    for (int rank = 0; rank < ranks; ++rank) program(*world.communicator(rank));
    world.check();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FakeWorld, CountsTheBytesThatARankSends) {
  FakeWorld world(4);
  for (int rank = 0; rank < 4; ++rank) {
    const auto c = world.communicator(rank);
    c->all_reduce(meta(1000), {.label = "gradients"});
    c->all_reduce(meta(1000), {.label = "gradients"});
    c->reduce_scatter(meta(100), meta(25), {25, 25, 25, 25}, {.label = "parts"});
    c->all_gather(meta(25), meta(100), {25, 25, 25, 25}, {.label = "weights"});
    c->broadcast(meta(10), 1, {.label = "start"});
  }
  world.check();
  const auto traffic = world.traffic(1);
  EXPECT_EQ(traffic.at("gradients").calls, 2);
  EXPECT_EQ(traffic.at("gradients").bytes, 2 * 2 * 4000 * 3 / 4);
  EXPECT_EQ(traffic.at("parts").bytes, 300);
  EXPECT_EQ(traffic.at("weights").bytes, 300);
  EXPECT_EQ(traffic.at("start").bytes, 120);
  EXPECT_EQ(world.traffic(0).at("start").bytes, 0);
}

TEST(FakeWorld, FindsRanksThatDisagree) {
  EXPECT_NE(verdict(4, [](Communicator& c) { c.all_reduce(meta(c.rank() == 2 ? 5 : 4), {.label = "x"}); })
                .find("ranks 3 and 2 do not agree"),
            std::string::npos);
  EXPECT_NE(verdict(2, [](Communicator& c) { c.rank() == 0 ? c.barrier({.label = "a"}) : c.barrier({.label = "b"}); })
                .find("barrier \"a\""),
            std::string::npos);
  EXPECT_NE(verdict(3,
                    [](Communicator& c) {
                      if (c.rank() != 1) c.barrier({.label = "end"});
                    })
                .find("rank 1 has ended"),
            std::string::npos);
}

TEST(FakeWorld, FindsDeadlocksOfGroupsAndMessages) {
  // Rows and columns of a 2 × 2 grid in opposite orders: each rank waits for another.
  const std::string circle = verdict(4, [](Communicator& c) {
    const auto row = c.split({0, 0, 1, 1});
    const auto column = c.split({0, 1, 0, 1});
    const bool first = c.rank() == 0 || c.rank() == 3;
    (first ? row : column)->barrier({.label = "one"});
    (first ? column : row)->barrier({.label = "two"});
  });
  EXPECT_NE(circle.find("deadlock"), std::string::npos) << circle;
  const auto ring = [](Communicator& c, bool grouped) {
    const int next = (c.rank() + 1) % c.size();
    const int last = (c.rank() + c.size() - 1) % c.size();
    if (grouped) return c.exchange({{next, meta(4)}}, {{last, meta(4)}}, {.label = "ring"});
    c.exchange({{next, meta(4)}}, {}, {.label = "send"});
    c.exchange({}, {{last, meta(4)}}, {.label = "receive"});
  };
  EXPECT_EQ(verdict(5, [&](Communicator& c) { ring(c, true); }), "");
  EXPECT_NE(verdict(5, [&](Communicator& c) { ring(c, false); }).find("deadlock"), std::string::npos);
}

TEST(FakeWorld, ChecksThousandsOfRanksOfAGrid) {
  constexpr int kRow = 8;
  constexpr int kRanks = 4096;
  std::vector<int> rows;
  for (int r = 0; r < kRanks; ++r) rows.push_back(r / kRow);
  FakeWorld world(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto c = world.communicator(rank);
    const auto row = c->split(rows);
    for (int layer = 0; layer < 8; ++layer) row->all_reduce(meta(64), {.label = "activations"});
    c->barrier({.label = "step"});
  }
  world.check();
  world.communicator(100)->barrier({.label = "one more"});
  EXPECT_THROW(world.check(), Error);
}

}  // namespace
}  // namespace lamina::testing
