// Lost, stuck and disagreeing ranks end all ranks with a message that names rank, operation and update.
#include <gtest/gtest.h>

#include <atomic>

#include "comm/ranks.h"

namespace lamina::testing {
namespace {

using comm::Communicator;

/// The message of the exception that `body` ends with.
std::string local_error(int ranks, const std::function<void(Communicator&)>& body, double deadline = 60) {
  try {
    comm::run_local_ranks(ranks, body, {.deadline = deadline});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void sum(Communicator& c, std::string_view label) {
  c.all_reduce(Tensor::zeros({4}, DType::f32, Device::cpu(1)), {.label = label});
}

TEST(CommFailure, ARankThatFailsEndsAll) {
  std::atomic<int> ended{0};
  const std::string error = local_error(4, [&](Communicator& c) {
    if (c.rank() == 2) throw Error("disk is full");
    try {
      sum(c, "gradients");
    } catch (const comm::CommError& other) {
      EXPECT_NE(std::string(other.what()).find("rank 2 (this process) failed: disk is full"), std::string::npos);
      ++ended;
      throw;
    }
  });
  EXPECT_EQ(error, "disk is full");
  EXPECT_EQ(ended, 3);
}

TEST(CommFailure, AStuckRankIsNamedWithOperationAndUpdate) {
  std::atomic<bool> over{false};
  const std::string error = local_error(
      2,
      [&](Communicator& c) {
        c.set_update(12);
        if (c.rank() == 1) {
          while (!over) std::this_thread::yield();
          return;
        }
        try {
          sum(c, "gradients");
        } catch (...) {
          over = true;
          throw;
        }
      },
      0.05);
  EXPECT_EQ(
      error,
      "rank 1 (this process) did not reach all_reduce \"gradients\" of update 12 within 0.05 s; rank 0 waited for "
      "it");
}

TEST(CommFailure, DifferentCallsAreReported) {
  const auto disagree = [](Communicator& c) {
    c.set_update(3);
    if (c.rank() == 0) return sum(c, "gradients");
    c.barrier({.label = "save"});
  };
  const std::string error = local_error(2, disagree);
  EXPECT_NE(error.find("of update 3"), std::string::npos) << error;
  EXPECT_NE(error.find("must make the same calls in the same order"), std::string::npos) << error;
  const auto labels = [](Communicator& c) { sum(c, c.rank() == 0 ? "weights" : "gradients"); };
  EXPECT_NE(local_error(2, labels).find("it is in all_reduce"), std::string::npos);
  const auto sizes = [](Communicator& c) {
    c.all_reduce(Tensor::zeros({4 + c.rank()}, DType::f32, Device::cpu(1)), {.label = "x"});
  };
  EXPECT_NE(local_error(2, sizes).find("bytes"), std::string::npos);
  for (const std::string& text : run_tcp_ranks(2, disagree)) {
    EXPECT_NE(text.find("must make the same calls in the same order"), std::string::npos) << text;
  }
}

TEST(CommFailure, AnAbortReachesTcpRanks) {
  const auto errors = run_tcp_ranks(3, [](Communicator& c) {
    if (c.rank() == 1) {
      c.abort("rank 1 cannot write its checkpoint");
      throw Error("full");
    }
    sum(c, "gradients");
  });
  EXPECT_EQ(errors[0], "rank 1 cannot write its checkpoint");
  EXPECT_EQ(errors[2], "rank 1 cannot write its checkpoint");
}

TEST(CommFailure, ATcpRankThatLeavesIsNamed) {
  const auto errors = run_tcp_ranks(3, [](Communicator& c) {
    c.set_update(5);
    sum(c, "gradients");
    if (c.rank() != 2) sum(c, "norm");
  });
  EXPECT_EQ(errors[2], "");
  for (const size_t rank : {0U, 1U}) {
    EXPECT_NE(errors[rank].find("rank 2"), std::string::npos) << errors[rank];
    EXPECT_NE(errors[rank].find("all_reduce \"norm\" of update 5"), std::string::npos) << errors[rank];
  }
}

}  // namespace
}  // namespace lamina::testing
