#include "lamina/tensor/idle_time.h"

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina {
namespace {

enum Time : int { kEnd, kBegin, kIdle, kBusy, kTimes };

__global__ void read_clock(int64_t* times, bool begins) {
  cuda::grid_dependency_wait();
  int64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  if (begins) {
    if (times[kEnd] != 0) times[kIdle] += now - times[kEnd];
    times[kBegin] = now;
  } else {
    times[kBusy] += now - times[kBegin];
    times[kEnd] = now;
  }
}

void launch(const Tensor& times, bool begins) {
  cuda::launch_dependent(read_clock, dim3(1), dim3(1), 0, times.device(), times.data<int64_t>(), begins);
  cuda::check_launch("idle time");
}

}  // namespace

IdleTime::IdleTime(const Device& device) {
  LAMINA_CHECK(device.kind() == DeviceKind::cuda, "idle time of ", device, ": expected a cuda device");
  times_ = Tensor::zeros({kTimes}, DType::i64, device);
}

void IdleTime::begin() { launch(times_, true); }

void IdleTime::end() { launch(times_, false); }

double IdleTime::take_share() {
  const std::vector<int64_t> times = times_.to_vector<int64_t>();
  times_.fill_(0);
  const auto all = static_cast<double>(times[kIdle] + times[kBusy]);
  return all > 0 ? static_cast<double>(times[kIdle]) / all : 0;
}

}  // namespace lamina
