#include "lamina/base/cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace lamina {
namespace {

namespace fs = std::filesystem;

TEST(cores, ThreadsOfOneCoreCountOnce) {
  const fs::path system = fs::path(::testing::TempDir()) / "cores";
  fs::remove_all(system);
  const char* siblings[] = {"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"};
  for (int cpu = 0; cpu < 8; ++cpu) {
    const fs::path topology = system / ("cpu" + std::to_string(cpu)) / "topology";
    fs::create_directories(topology);
    std::ofstream(topology / "thread_siblings_list") << siblings[cpu] << '\n';
  }
  EXPECT_EQ(distinct_cores({0, 1, 2, 3, 4, 5, 6, 7}, system.string()), 4);
  EXPECT_EQ(distinct_cores({0, 4}, system.string()), 1);
  EXPECT_EQ(distinct_cores({4, 5, 6}, system.string()), 3);
  EXPECT_EQ(distinct_cores({0, 1, 100, 101}, system.string()), 4);  // the last two have no topology files
  EXPECT_EQ(distinct_cores({0, 1, 2}, (system / "missing").string()), 3);
  fs::remove_all(system);
}

TEST(cores, AControlGroupsShareIsRoundedUp) {
  EXPECT_EQ(quota_cores("max 100000"), 0);
  EXPECT_EQ(quota_cores(""), 0);
  EXPECT_EQ(quota_cores("200000 100000"), 2);
  EXPECT_EQ(quota_cores("150000 100000"), 2);
  EXPECT_EQ(quota_cores("50000 100000"), 1);
  EXPECT_EQ(quota_cores("-1 100000"), 0);
}

TEST(cores, ThereIsOne) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace lamina
