// Inputs and results of replayed work cross between host and device while the device is busy.
#include "lamina/tensor/host_inputs.h"

#include <algorithm>

#include "lamina/tensor/readback.h"
#include "on_gpu.h"

namespace lamina::testing {
namespace {

class CudaHostInputs : public OnGpu<> {};

constexpr int64_t kCount = 3000;  // the kernel that reads them has 1024 threads

std::vector<int64_t> values_of(int64_t run) {
  std::vector<int64_t> values(kCount);
  for (int64_t i = 0; i < kCount; ++i) values[static_cast<size_t>(i)] = run * 10000 + i;
  return values;
}

TEST_F(CudaHostInputs, EveryRunReadsItsOwnValues) {
  const Device gpu = Device::cuda();
  HostInputs inputs(gpu, kCount);
  Readback results(gpu, kCount);
  const Tensor values = Tensor::zeros({kCount}, DType::i64, gpu);
  Replay work(gpu, [&] {
    inputs.read(values);
    results.write(values);
  });
  int64_t finished = 0;
  const auto check_oldest = [&] {
    EXPECT_EQ(results.wait(), values_of(finished)) << finished;
    ++finished;
  };
  for (int64_t run = 0; run < 60; ++run) {
    if (results.pending() == HostInputs::kMaxPending) check_oldest();  // the other run is still queued
    std::ranges::copy(values_of(-1), inputs.next().begin());
    if (run % 7 == 4) inputs.reset();  // as if queueing had failed
    std::ranges::copy(values_of(run), inputs.next().begin());
    work.run();
    inputs.mark();
    results.mark();
  }
  while (results.pending() > 0) check_oldest();
}

}  // namespace
}  // namespace lamina::testing
