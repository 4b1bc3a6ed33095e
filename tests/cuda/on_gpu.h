// Helpers for tests that need a GPU.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "lamina/tensor/replay.h"
#include "lamina/tensor/tensor.h"

namespace lamina::testing {

/// A fixture, optionally with parameters, whose tests are skipped if there is no GPU.
template <class Base = ::testing::Test>
class OnGpu : public Base {
 protected:
  void SetUp() override {
    if (Device::cuda_count() == 0) GTEST_SKIP() << "no GPU, or a build without CUDA";
  }
};

/// Expects bit-identical results from `work`, run once and then captured and replayed as a CUDA graph.
inline void expect_same_repeated(const Device& gpu, const std::function<Tensor()>& work) {
  Tensor result;
  Replay replay(gpu, [&] { result = work(); });
  replay.run();
  gpu.synchronize();
  const std::vector<double> expected = result.to_vector<double>();
  for (int i = 0; i < 50; ++i) {
    replay.run();
    EXPECT_EQ(result.to_vector<double>(), expected) << i;
  }
}

}  // namespace lamina::testing
