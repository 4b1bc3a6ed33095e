#include "lamina/tensor/replay.h"

#include <cstring>
#include <vector>

#include "lamina/tensor/cuda/device.h"
#include "lamina/tensor/cuda/runtime.h"

namespace lamina {
namespace cuda {
namespace {

/// Host memory that the copies in a captured graph read. Kept alive by the graph.
using Constants = std::vector<std::shared_ptr<void>>;

/// State of the capture in progress on a device.
struct CaptureState {
  explicit CaptureState(int /*index*/) {}
  Constants* constants = nullptr;
};

}  // namespace

const void* captured_copy(const Device& device, const void* bytes, size_t count) {
  Constants* constants = attached<CaptureState>(device).constants;
  if (constants == nullptr) return bytes;
  void* copy = nullptr;
  LAMINA_CUDA(cudaMallocHost(&copy, count), "CUDA graph capture");
  constants->emplace_back(copy, [](void* memory) { cudaFreeHost(memory); });
  std::memcpy(copy, bytes, count);
  return copy;
}

}  // namespace cuda

struct Replay::State {
  Device device;
  std::function<void()> work;
  int trials = 2;
  std::shared_ptr<cuda::GraphMemoryPool> pool;
  cuda::Constants constants;
  cudaGraphExec_t graph = nullptr;
};

namespace {

/// For its lifetime (if `on`), libraries choose their kernels by timing them.
class Autotune {
 public:
  Autotune(const Device& device, bool on) : device_(device) { cuda::set_autotune(device_, on); }
  Autotune(const Autotune&) = delete;
  Autotune& operator=(const Autotune&) = delete;
  ~Autotune() { cuda::set_autotune(device_, false); }

 private:
  Device device_;
};

/// Captures a CUDA graph until it is destroyed, even if the work throws.
class GraphCapture {
 public:
  GraphCapture(const Device& device, cuda::Constants& constants)
      : device_(device), pool_(cuda::begin_pool(device.allocator())) {
    cuda::attached<cuda::CaptureState>(device).constants = &constants;
    LAMINA_CUDA(cudaStreamBeginCapture(cuda::stream_of(device), cudaStreamCaptureModeRelaxed), "CUDA graph capture");
  }
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;
  ~GraphCapture() {
    if (!ended_) cudaGraphDestroy(end());
    cudaGetLastError();
  }

  const std::shared_ptr<cuda::GraphMemoryPool>& pool() const { return pool_; }

  cudaGraph_t end() {
    ended_ = true;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(cuda::stream_of(device_), &graph);
    cuda::attached<cuda::CaptureState>(device_).constants = nullptr;
    cuda::end_pool(device_.allocator());
    return graph;
  }

 private:
  Device device_;
  std::shared_ptr<cuda::GraphMemoryPool> pool_;
  bool ended_ = false;
};

}  // namespace

void Replay::record(State& state) {
  state.device.allocator().trim();  // release the warm-up runs' memory, so that the graph's pool can use it
  GraphCapture recording(state.device, state.constants);
  state.pool = recording.pool();
  state.work();
  cudaGraph_t graph = recording.end();
  const cudaError_t status = cudaGraphInstantiate(&state.graph, graph, 0);
  cudaGraphDestroy(graph);
  LAMINA_CUDA(status, "CUDA graph capture");
}

bool Replay::possible(const Device& device) { return device.kind() == DeviceKind::cuda; }

Replay::Replay(const Device& device, std::function<void()> work)
    : state_(std::make_unique<State>(State{device, {}, 2, nullptr, {}, nullptr})) {
  LAMINA_CHECK(possible(device), "a replay on ", device, ": CUDA graphs need a cuda device");
  state_->work = std::move(work);
}

Replay::~Replay() {
  if (state_->graph == nullptr) return;
  cudaStreamSynchronize(cuda::stream_of(state_->device));
  cudaGraphExecDestroy(state_->graph);
}

bool Replay::is_captured() const { return state_->graph != nullptr; }

bool Replay::run(uint64_t random_offset) {
  if (random_offset != 0) cuda::set_random_offset(state_->device, random_offset);
  bool called = true;
  if (state_->trials > 0) {
    const Autotune choosing(state_->device, --state_->trials == 0);
    state_->work();
  } else {
    called = state_->graph == nullptr;
    if (called) record(*state_);
    LAMINA_CUDA(cudaGraphLaunch(state_->graph, cuda::stream_of(state_->device)), "replay");
  }
  if (random_offset != 0) cuda::set_random_offset(state_->device, 0);
  return called;
}

}  // namespace lamina
