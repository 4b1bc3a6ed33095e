#include "lamina/tensor/readback.h"

#include "lamina/tensor/cuda/copy.h"
#include "lamina/tensor/cuda/runtime.h"

namespace lamina {

struct Readback::State {
  Device device;
  int64_t count = 0;
  int64_t* values = nullptr;  ///< in memory that the device writes by itself
  cudaEvent_t arrived = nullptr;
};

Readback::Readback(const Device& device, int64_t count) : state_(std::make_unique<State>(State{device, count})) {
  LAMINA_CHECK(device.kind() == DeviceKind::cuda, "a readback from ", device, ": only a GPU works on by itself");
  LAMINA_CUDA(cudaMallocHost(reinterpret_cast<void**>(&state_->values), static_cast<size_t>(count) * sizeof(int64_t)),
              "readback");
  LAMINA_CUDA(cudaEventCreateWithFlags(&state_->arrived, cudaEventDisableTiming), "readback");
}

Readback::~Readback() {
  if (state_->arrived != nullptr) {
    cudaEventSynchronize(state_->arrived);
    cudaEventDestroy(state_->arrived);
  }
  cudaFreeHost(state_->values);
}

void Readback::start(const Tensor& source) {
  LAMINA_CHECK(source.dtype() == DType::i64 && source.is_contiguous() && source.numel() == state_->count,
               "readback: given is ", source.dtype(), " ", source.shape(), "; expected ", state_->count,
               " dense elements of i64");
  cudaStream_t stream = cuda::stream_of(state_->device);
  cuda::write_to_host(source, state_->values);
  LAMINA_CUDA(cudaEventRecord(state_->arrived, stream), "readback");
}

std::vector<int64_t> Readback::wait() {
  LAMINA_CUDA(cudaEventSynchronize(state_->arrived), "readback");
  cuda::check_faults(state_->device);
  return {state_->values, state_->values + state_->count};
}

}  // namespace lamina
