#include "lamina/tensor/cuda/runtime.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "lamina/tensor/caching_allocator.h"
#include "lamina/tensor/cuda/device.h"

namespace lamina::cuda {
namespace {

/// Makes a device current for a scope: memory, streams and library handles belong to the current one.
class Current {
 public:
  explicit Current(int index) {
    cudaGetDevice(&before_);
    LAMINA_CUDA(cudaSetDevice(index), "device");
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

/// Blocks are handed out again in the order of the one stream that uses them.
class CachingCuda final : public CachingAllocator {
 public:
  explicit CachingCuda(int index) : index_(index) {}
  CachingCuda(const CachingCuda&) = delete;
  CachingCuda& operator=(const CachingCuda&) = delete;
  ~CachingCuda() override { release_cached(); }

 private:
  void* take(size_t size) override {
    const Current current(index_);
    void* block = nullptr;
    if (cudaMalloc(&block, size) == cudaSuccess) return block;
    cudaGetLastError();  // a refusal is answered by giving cached blocks back
    return nullptr;
  }
  void give_back(void* block) noexcept override { cudaFree(block); }
  const char* place() const override { return "GPU "; }

  int index_;
};

const char* advice(Fault fault) {
  switch (fault) {
    case Fault::token_id: return "embedding: the token id is outside the table; use the tokenizer of this model";
    case Fault::target: return "cross_entropy: the target is no class of the logits; use the tokenizer of this model";
    case Fault::expert: return "experts: the index is outside their number";
    case Fault::cache_length: return "attention_decode: keys in use of a row do not fit the cache and the queries";
    case Fault::document_start: return "attention: document_starts do not ascend from 0 to the sequence's length";
    case Fault::none: break;
  }
  return "";
}

class CudaStream final : public Stream {
 public:
  /// Leaves the device current for this thread: kernels are launched there.
  explicit CudaStream(int device) : index(device) {
    LAMINA_CUDA(cudaSetDevice(index), "device");
    LAMINA_CUDA(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "stream");
    void* memory = nullptr;
    LAMINA_CUDA(cudaHostAlloc(&memory, sizeof(FaultSlot), cudaHostAllocMapped), "stream");
    faults = new (memory) FaultSlot;
    LAMINA_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, index), "stream");
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override {
    cudaStreamSynchronize(handle);
    attached.clear();
    cudaStreamDestroy(handle);
    cudaFreeHost(faults);
  }

  void synchronize() override {
    LAMINA_CUDA(cudaStreamSynchronize(handle), "waiting for the GPU");
    const FaultSlot found = *faults;
    if (found.fault == 0) return;
    *faults = {};
    throw Error(str(advice(static_cast<Fault>(found.fault)), " (given: ", found.value, ")"));
  }

  int index;
  int processors = 0;
  cudaStream_t handle = nullptr;
  FaultSlot* faults = nullptr;
  std::mutex mutex;
  std::map<std::type_index, std::shared_ptr<void>> attached;
};

CudaStream& cuda_stream(const Device& device) {
  LAMINA_CHECK(device.kind() == DeviceKind::cuda, "a kernel for cuda was given tensors on ", device);
  return static_cast<CudaStream&>(*device.stream());
}

}  // namespace

const bool kBuilt = true;

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver is no error: there is no device
  return 0;
}

std::shared_ptr<Allocator> make_allocator(int index) { return std::make_shared<CachingCuda>(index); }
std::unique_ptr<Stream> make_stream(int index) { return std::make_unique<CudaStream>(index); }

void check(cudaError_t status, const char* call, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw Error(str(what, ": ", call, " failed: ", cudaGetErrorString(status),
                  "; CUDA_LAUNCH_BLOCKING=1 names the operator that failed first"));
}

cudaStream_t stream_of(const Device& device) { return cuda_stream(device).handle; }
int processors(const Device& device) { return cuda_stream(device).processors; }
FaultSlot* fault_slot(const Device& device) { return cuda_stream(device).faults; }

void check_launch(const char* op) { check(cudaGetLastError(), "a kernel's launch", op); }

int blocks_for(int64_t count, int threads) {
  constexpr int64_t kMost = 0x7fffffff;
  return static_cast<int>(std::min((count + threads - 1) / threads, kMost));
}

void* attached_object(const Device& device, std::type_index type,
                      const std::function<std::shared_ptr<void>(int index)>& make) {
  CudaStream& stream = cuda_stream(device);
  const std::lock_guard lock(stream.mutex);
  std::shared_ptr<void>& object = stream.attached[type];
  if (!object) {
    const Current current(stream.index);
    object = make(stream.index);
  }
  return object.get();
}

}  // namespace lamina::cuda
