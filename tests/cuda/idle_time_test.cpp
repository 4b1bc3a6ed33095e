#include "lamina/tensor/idle_time.h"

#include <chrono>
#include <thread>

#include "on_gpu.h"

namespace lamina::testing {
namespace {

class CudaIdleTime : public OnGpu<> {};

TEST_F(CudaIdleTime, CountsTheTimeBetweenPiecesOfWork) {
  const Device gpu = Device::cuda();
  IdleTime idle(gpu);
  Tensor values = Tensor::zeros({1 << 20}, DType::f32, gpu);
  Replay work(gpu, [&] {
    idle.begin();
    values.fill_(1.0);
    idle.end();
  });
  for (int i = 0; i < 5; ++i) work.run();
  gpu.synchronize();
  idle.take_share();
  for (int i = 0; i < 5; ++i) {
    work.run();
    gpu.synchronize();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GT(idle.take_share(), 0.9);
  EXPECT_EQ(idle.take_share(), 0);  // no work since
  work.run();
  EXPECT_EQ(idle.take_share(), 0);  // a single piece of work
}

}  // namespace
}  // namespace lamina::testing
