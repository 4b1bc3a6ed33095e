// Ranks from launchers' variables, and the first message of a connection.
#include <gtest/gtest.h>

#include <map>

#include "lamina/comm/environment.h"
#include "lamina/comm/store.h"

namespace lamina::testing {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<comm::RankEnvironment> read(const Variables& variables) {
  return comm::read_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return {};
    return found->second;
  });
}

TEST(RankEnvironment, ReadsEveryLauncher) {
  EXPECT_FALSE(read({}));
  const auto torchrun = read({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(torchrun->rank, 3);
  EXPECT_EQ(torchrun->size, 4);
  EXPECT_EQ(torchrun->master_address, "node1");
  EXPECT_EQ(torchrun->master_port, 29500);
  for (const char* address : {"::1", "[::1]"}) {
    const auto ipv6 = read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", address}, {"MASTER_PORT", "29500"}});
    EXPECT_EQ(ipv6->master_address, "::1");
  }
  const Variables mpirun{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "123456"}};
  const auto openmpi = read(mpirun);
  EXPECT_EQ(openmpi->launcher, "openmpi");
  EXPECT_EQ(openmpi->rank, 1);
  EXPECT_EQ(openmpi->master_address, "127.0.0.1");
  EXPECT_GE(openmpi->master_port, 15000);
  EXPECT_EQ(read({{"PMI_RANK", "0"}, {"PMI_SIZE", "8"}})->size, 8);
  const auto slurm = read({{"SLURM_PROCID", "5"},
                           {"SLURM_STEP_NUM_TASKS", "16"},
                           {"SLURM_STEP_NODELIST", "node[07-09,12]"},
                           {"SLURM_JOB_ID", "991"}});
  EXPECT_EQ(slurm->rank, 5);
  EXPECT_EQ(slurm->master_address, "node07");
  EXPECT_FALSE(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}));  // the batch script: one process
}

TEST(RankEnvironment, ContradictionsAreErrors) {
  EXPECT_THROW(read({{"RANK", "0"}}), Error);
  EXPECT_THROW(read({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), Error);
  EXPECT_THROW(read({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), Error);
  EXPECT_THROW(read({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), Error);
  EXPECT_THROW(read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}), Error);
  EXPECT_THROW(read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LAMINA_COMM_SECONDS", "soon"}}), Error);
}

TEST(RankEnvironment, FirstHostOfANodeList) {
  EXPECT_EQ(comm::first_host("login"), "login");
  EXPECT_EQ(comm::first_host("a1,a2"), "a1");
  EXPECT_EQ(comm::first_host("node[12]"), "node12");
  EXPECT_EQ(comm::first_host("rack1-n[003,007-009],other"), "rack1-n003");
  EXPECT_EQ(comm::first_host("node["), "node");
  EXPECT_EQ(comm::first_host(""), "");
}

TEST(Store, OnlyHellosAreTaken) {
  const std::string hello = comm::encode_hello({3, 4, 17});
  EXPECT_EQ(comm::decode_hello(hello)->rank, 3);
  EXPECT_EQ(comm::decode_hello(hello)->size, 4);
  EXPECT_EQ(comm::decode_hello(hello)->value_bytes, 17U);
  EXPECT_FALSE(comm::decode_hello("GET / HTTP/1.1\r\n"));
  EXPECT_FALSE(comm::decode_hello(comm::encode_hello({4, 4, 0})));
  EXPECT_FALSE(comm::decode_hello(comm::encode_hello({0, 1 << 30, 0})));
  EXPECT_FALSE(comm::decode_hello(comm::encode_hello({1, 4, 1 << 30})));
  EXPECT_FALSE(comm::decode_hello(""));
}

}  // namespace
}  // namespace lamina::testing
