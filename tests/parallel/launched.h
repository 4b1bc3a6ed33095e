#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "lamina/comm/nccl.h"
#include "lamina/comm/open.h"

namespace lamina::testing {

/// A test that all processes of a job run together; the script launched_test starts them. Skipped in a process that was
/// started alone. Tensors are on the CPU, and ranks communicate over MPI or TCP. With LAMINA_TEST_DEVICE=cuda, tensors
/// are on the first GPU, and ranks communicate over NCCL.
class Launched : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::optional<comm::RankEnvironment> job = comm::read_environment();
    if (!job || job->size < 2) return;
    const char* name = std::getenv("LAMINA_TEST_DEVICE");
    device_ = Device::named(name == nullptr ? "cpu" : name, 1, /*deterministic=*/true);
    ranks_ = comm::open_communicator(*job);
    if (on_gpu()) ranks_ = comm::make_nccl_communicator(std::move(ranks_), *device_);
  }
  /// Ends communication before static variables are destroyed, as NCCL and MPI need.
  static void TearDownTestSuite() {
    if (ranks_ && ranks_->failure().empty()) ranks_->barrier({.label = "end of tests"});
    ranks_.reset();
    device_.reset();
  }
  void SetUp() override {
    if (!ranks_) GTEST_SKIP() << "this process was started alone; tests/parallel/launched_test starts several";
  }

  static const std::shared_ptr<comm::Communicator>& ranks() { return ranks_; }
  static const Device& device() { return *device_; }
  static int size() { return ranks_->size(); }
  static bool is_first() { return ranks_->rank() == 0; }
  static bool on_gpu() { return device_->kind() == DeviceKind::cuda; }

 private:
  inline static std::shared_ptr<comm::Communicator> ranks_;
  inline static std::optional<Device> device_;
};

}  // namespace lamina::testing
