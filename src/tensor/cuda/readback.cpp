#include "lamina/tensor/readback.h"

#include <array>

#include "lamina/tensor/cuda/copy.h"
#include "lamina/tensor/cuda/runtime.h"

namespace lamina {

struct Readback::State {
  Device device;
  int64_t count = 0;
  Tensor turn;                ///< [1]: number of writes so far
  int64_t* values = nullptr;  ///< [kMaxPending, count]: pinned host memory that the device writes
  std::array<cudaEvent_t, kMaxPending> arrived = {};
  size_t marked = 0;
  size_t waited = 0;
};

Readback::Readback(const Device& device, int64_t count) {
  LAMINA_CHECK(device.kind() == DeviceKind::cuda, "a readback from ", device, ": expected a cuda device");
  state_ = std::make_unique<State>(State{device, count, Tensor::zeros({1}, DType::i64, device)});
  LAMINA_CUDA(cudaMallocHost(reinterpret_cast<void**>(&state_->values),
                             kMaxPending * static_cast<size_t>(count) * sizeof(int64_t)),
              "readback");
  for (cudaEvent_t& event : state_->arrived) {
    LAMINA_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "readback");
  }
}

Readback::~Readback() {
  for (cudaEvent_t event : state_->arrived) {
    if (event == nullptr) continue;
    cudaEventSynchronize(event);
    cudaEventDestroy(event);
  }
  cudaFreeHost(state_->values);
}

void Readback::write(const Tensor& source) {
  static_assert(kMaxPending == 2, "write_to_host takes two targets in turns");
  LAMINA_CHECK(source.dtype() == DType::i64 && source.is_contiguous() && source.numel() == state_->count,
               "readback: given is ", source.dtype(), " ", source.shape(), "; expected ", state_->count,
               " dense elements of i64");
  cuda::write_to_host(source, state_->values, state_->turn);
}

void Readback::mark() {
  LAMINA_CHECK(pending() < kMaxPending, "readback: ", pending(),
               " turns are waiting to be read; read the oldest first");
  LAMINA_CUDA(cudaEventRecord(state_->arrived.at(state_->marked % kMaxPending), cuda::stream_of(state_->device)),
              "readback");
  ++state_->marked;
}

std::vector<int64_t> Readback::wait() {
  LAMINA_CHECK(pending() > 0, "readback: nothing has been marked since the last wait; mark a turn first");
  const size_t slot = state_->waited % kMaxPending;
  LAMINA_CUDA(cudaEventSynchronize(state_->arrived.at(slot)), "readback");
  ++state_->waited;
  cuda::check_faults(state_->device);
  const int64_t* values = state_->values + slot * static_cast<size_t>(state_->count);
  return {values, values + state_->count};
}

size_t Readback::pending() const { return state_->marked - state_->waited; }

}  // namespace lamina
