#include "lamina/tensor/cuda/runtime.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "lamina/tensor/caching_allocator.h"
#include "lamina/tensor/cuda/device.h"

namespace lamina::cuda {

class CachingCuda;

class GraphMemoryPool {
 public:
  explicit GraphMemoryPool(CachingCuda& from) : allocator(from) {}
  GraphMemoryPool(const GraphMemoryPool&) = delete;
  GraphMemoryPool& operator=(const GraphMemoryPool&) = delete;
  ~GraphMemoryPool();

  CachingCuda& allocator;
  std::map<size_t, std::vector<void*>> free;
};

namespace {

/// Makes a device current within a scope. CUDA allocations, streams and library handles belong to the current device.
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

}  // namespace

/// Blocks are reused in the order of the only CUDA stream that uses them. Blocks of a pool are recognized by address.
class CachingCuda final : public CachingAllocator {
 public:
  explicit CachingCuda(int index) : index_(index) {}
  CachingCuda(const CachingCuda&) = delete;
  CachingCuda& operator=(const CachingCuda&) = delete;
  ~CachingCuda() override { release_cached(); }

  void* allocate(size_t bytes) override;
  void deallocate(void* block, size_t bytes) noexcept override;

  void use_pool(const std::shared_ptr<GraphMemoryPool>& pool) {
    const std::lock_guard lock(mutex_);
    pool_ = pool;
  }
  /// Returns the blocks of a destroyed pool to the general cache.
  void dissolve(const GraphMemoryPool& pool);

 private:
  void* take(size_t size) override {
    const Current current(index_);
    void* block = nullptr;
    if (cudaMalloc(&block, size) == cudaSuccess) return block;
    cudaGetLastError();  // clear the error: the caller frees cached blocks and tries again
    return nullptr;
  }
  void give_back(void* block) noexcept override { cudaFree(block); }
  const char* place() const override { return "GPU "; }

  int index_;
  std::weak_ptr<GraphMemoryPool> pool_;  // the active pool
  std::unordered_map<void*, GraphMemoryPool*> owner_;
};

void* CachingCuda::allocate(size_t bytes) {
  const std::shared_ptr<GraphMemoryPool> pool = pool_.lock();
  if (!pool) return CachingAllocator::allocate(bytes);
  const size_t size = size_class(bytes);
  const std::lock_guard lock(mutex_);
  std::vector<void*>& cached = pool->free[size];
  void* block = nullptr;
  if (cached.empty()) {
    block = from_system(size);
    owner_[block] = pool.get();
  } else {
    block = cached.back();
    cached.pop_back();
    ++counters_.cache_hits;
  }
  count_allocation(size);
  return block;
}

void CachingCuda::deallocate(void* block, size_t bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto found = owner_.find(block);
    if (found != owner_.end()) {
      const size_t size = size_class(bytes);
      counters_.live -= static_cast<int64_t>(size);
      found->second->free[size].push_back(block);
      return;
    }
  }
  CachingAllocator::deallocate(block, bytes);
}

void CachingCuda::dissolve(const GraphMemoryPool& pool) {
  const std::lock_guard lock(mutex_);
  std::erase_if(owner_, [&](const auto& entry) { return entry.second == &pool; });
  for (const auto& [size, blocks] : pool.free) free_[size].insert(free_[size].end(), blocks.begin(), blocks.end());
}

GraphMemoryPool::~GraphMemoryPool() { allocator.dissolve(*this); }

std::shared_ptr<GraphMemoryPool> begin_pool(Allocator& allocator) {
  auto& from = dynamic_cast<CachingCuda&>(allocator);
  auto pool = std::make_shared<GraphMemoryPool>(from);
  from.use_pool(pool);
  return pool;
}

void end_pool(Allocator& allocator) { dynamic_cast<CachingCuda&>(allocator).use_pool(nullptr); }

namespace {

const char* advice(Fault fault) {
  switch (fault) {
    case Fault::token_id: return "embedding: the token id is outside the table; use the tokenizer of this model";
    case Fault::target:
      return "cross_entropy: the target is not a class index of the logits; use the tokenizer of this model";
    case Fault::expert: return "moe: the expert index is out of range; give indices in [0, experts)";
    case Fault::cache_length:
      return "attention_decode: a row's length exceeds the cache or is below the number of queries";
    case Fault::cache_place: return "cache_store: a row's new tokens do not fit into the cache; make a larger cache";
    case Fault::document_start: return "attention: document_starts must ascend from 0 to the sequence length";
    case Fault::position: return "rotary: the position is outside the tables; make longer tables with rotary_tables";
    case Fault::not_finite:
      return "muon: the gradient or momentum of a parameter is not finite; clip with error_if_nonfinite before the "
             "step, or skip it";
    case Fault::logit: return "sample: a logit is NaN; check the model's weights, or use a dtype with more range";
    case Fault::none: break;
  }
  return "";
}

class CudaStream final : public Stream {
 public:
  /// Makes the device current for this thread, and leaves it current for later kernel launches.
  explicit CudaStream(int device) : index(device) {
    LAMINA_CUDA(cudaSetDevice(index), "device");
    LAMINA_CUDA(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "stream");
    void* memory = nullptr;
    LAMINA_CUDA(cudaHostAlloc(&memory, sizeof(FaultSlot), cudaHostAllocMapped), "stream");
    faults = new (memory) FaultSlot;
    LAMINA_CUDA(cudaMalloc(reinterpret_cast<void**>(&random_offset), sizeof(*random_offset)), "stream");
    LAMINA_CUDA(cudaMemset(random_offset, 0, sizeof(*random_offset)), "stream");
    LAMINA_CUDA(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, index), "stream");
    LAMINA_CUDA(cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, index), "stream");
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override {
    cudaStreamSynchronize(handle);
    attached.clear();
    cudaStreamDestroy(handle);
    cudaFreeHost(faults);
    cudaFree(random_offset);
  }

  void synchronize() override {
    LAMINA_CUDA(cudaStreamSynchronize(handle), "waiting for the GPU");
    check_faults();
  }

  void check_faults() {
    const FaultSlot found = *faults;
    if (found.fault == 0) return;
    *faults = {};
    throw Error(str(advice(static_cast<Fault>(found.fault)), " (given: ", found.value, ")"));
  }

  int index;
  int sm_count = 0;
  int generation = 0;
  bool measures = false;
  cudaStream_t handle = nullptr;
  FaultSlot* faults = nullptr;
  unsigned long long* random_offset = nullptr;
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
  cudaGetLastError();  // without a driver there are no devices; not an error
  return 0;
}

int64_t free_memory(int index) {
  const Current current(index);
  size_t free = 0;
  size_t total = 0;
  LAMINA_CUDA(cudaMemGetInfo(&free, &total), "memory");
  return static_cast<int64_t>(free);
}

std::shared_ptr<Allocator> make_allocator(int index) { return std::make_shared<CachingCuda>(index); }
std::unique_ptr<Stream> make_stream(int index) { return std::make_unique<CudaStream>(index); }

void check(cudaError_t status, const char* call, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw Error(str(what, ": ", call, " failed: ", cudaGetErrorString(status),
                  "; run with CUDA_LAUNCH_BLOCKING=1 to find the operator that failed first"));
}

cudaStream_t stream_of(const Device& device) { return cuda_stream(device).handle; }
int sm_count(const Device& device) { return cuda_stream(device).sm_count; }
bool has_dependent_launch(const Device& device) { return cuda_stream(device).generation >= 9; }
FaultSlot* fault_slot(const Device& device) { return cuda_stream(device).faults; }
void check_faults(const Device& device) { cuda_stream(device).check_faults(); }

const unsigned long long* random_offset(const Device& device) { return cuda_stream(device).random_offset; }

void set_random_offset(const Device& device, uint64_t offset) {
  const unsigned long long value = offset;
  LAMINA_CUDA(cudaMemcpyAsync(cuda_stream(device).random_offset, &value, sizeof(value), cudaMemcpyHostToDevice,
                              stream_of(device)),
              "random numbers");
}

bool autotunes(const Device& device) { return cuda_stream(device).measures; }
void set_autotune(const Device& device, bool on) { cuda_stream(device).measures = on && !device.deterministic(); }

void check_launch(const char* op) { check(cudaGetLastError(), "the kernel launch", op); }

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
