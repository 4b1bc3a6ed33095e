#include "lamina/base/cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

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

/// A folder with fake proc and sys trees.
class CgroupTree : public ::testing::Test {
 protected:
  CgroupTree() : root_(fs::path(::testing::TempDir()) / "cgroup_tree") { fs::remove_all(root_); }
  ~CgroupTree() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    const fs::path path = root_ / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  int cores() const { return cgroup_cores(root_.string()); }
  fs::path root_;
};

TEST_F(CgroupTree, WithoutQuotaThereIsNoLimit) {
  EXPECT_EQ(cores(), 0);  // no /proc at all
  write("proc/self/cgroup", "0::/");
  EXPECT_EQ(cores(), 0);
  write("sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_EQ(cores(), 0);
  write("proc/self/cgroup", "not a cgroup line");
  EXPECT_EQ(cores(), 0);
}

TEST_F(CgroupTree, TheSmallestQuotaOnThePathCounts) {
  write("proc/self/cgroup", "0::/system.slice/job.service/worker");
  write("sys/fs/cgroup/system.slice/cpu.max", "800000 100000");
  write("sys/fs/cgroup/system.slice/job.service/cpu.max", "250000 100000");
  write("sys/fs/cgroup/system.slice/job.service/worker/cpu.max", "max 100000");
  write("sys/fs/cgroup/other/cpu.max", "100000 100000");
  EXPECT_EQ(cores(), 3);
  write("sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(cores(), 2);
}

TEST_F(CgroupTree, AContainerMayNotSeeItsOwnFolder) {
  write("proc/self/cgroup", "0::/kubepods/pod1/container");
  write("sys/fs/cgroup/cpu.max", "400000 100000");
  EXPECT_EQ(cores(), 4);
}

TEST_F(CgroupTree, Version1) {
  write("proc/self/cgroup", "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n1:name=systemd:/docker/1");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores(), 0);
  write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "350000");
  write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores(), 4);
  write("proc/self/cgroup", "1:cpu:/\n2:cpuset:/a\n0::/b");  // hybrid, as mounted by systemd
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "600000");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "200000");
  EXPECT_EQ(cores(), 3);
  write("sys/fs/cgroup/unified/b/cpu.max", "100000 100000");
  EXPECT_EQ(cores(), 1);
}

TEST(cores, ThereIsOne) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace lamina
