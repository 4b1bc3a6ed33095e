#include "lamina/tensor/host_inputs.h"

#include <algorithm>

#include "lamina/tensor/cuda/copy.h"
#include "lamina/tensor/cuda/runtime.h"

namespace lamina {

struct HostInputs::State {
  Device device;
  size_t count = 0;
  Tensor turn;                ///< [1]: number of reads so far
  int64_t* values = nullptr;  ///< [kMaxPending, count]: pinned host memory that the device reads
  size_t queued = 0;
};

HostInputs::HostInputs(const Device& device, int64_t count) {
  LAMINA_CHECK(device.kind() == DeviceKind::cuda, "host inputs of ", device, ": expected a cuda device");
  state_ = std::make_unique<State>(State{device, static_cast<size_t>(count), Tensor::zeros({1}, DType::i64, device)});
  const size_t all = kMaxPending * state_->count;
  LAMINA_CUDA(cudaMallocHost(reinterpret_cast<void**>(&state_->values), all * sizeof(int64_t)), "host inputs");
  std::fill_n(state_->values, all, 0);
}

HostInputs::~HostInputs() {
  cudaStreamSynchronize(cuda::stream_of(state_->device));
  cudaFreeHost(state_->values);
}

std::span<int64_t> HostInputs::next() const {
  return {state_->values + state_->queued % kMaxPending * state_->count, state_->count};
}

void HostInputs::read(const Tensor& target) {
  static_assert(kMaxPending == 2, "read_from_host takes two sources in turns");
  LAMINA_CHECK(
      target.dtype() == DType::i64 && target.is_contiguous() && target.numel() == static_cast<int64_t>(state_->count),
      "host inputs: given is ", target.dtype(), " ", target.shape(), "; expected ", state_->count,
      " dense elements of i64");
  cuda::read_from_host(state_->values, target, state_->turn);
}

void HostInputs::mark() { ++state_->queued; }

void HostInputs::reset() {
  state_->turn.fill_(0);
  state_->queued = 0;
  state_->device.synchronize();
}

}  // namespace lamina
