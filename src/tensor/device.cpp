#include "lamina/tensor/device.h"

#include <atomic>
#include <charconv>
#include <map>
#include <ostream>

#include "lamina/base/error.h"
#include "lamina/tensor/cuda/device.h"

namespace lamina {

struct Device::State {
  DeviceKind kind;
  DeviceKind like;
  int index;
  std::shared_ptr<Allocator> allocator;
  Threads threads;
  std::unique_ptr<Stream> stream;
  bool deterministic = true;
  std::map<std::string, std::string, std::less<>> forced_kernels;  // operator → kernel
  std::atomic<int64_t> flops{0};
  std::atomic<int64_t> bytes{0};

  State(DeviceKind device_kind, int thread_count, std::shared_ptr<Allocator> memory)
      : kind(device_kind), like(device_kind), index(0), allocator(std::move(memory)), threads(thread_count) {}
};

Device Device::cpu(int threads, std::shared_ptr<Allocator> allocator) {
  if (!allocator) allocator = make_caching_cpu_allocator();
  return Device(std::make_shared<State>(DeviceKind::cpu, threads, std::move(allocator)));
}

Device Device::cuda(int index, bool deterministic) {
  const int count = cuda_count();
  LAMINA_CHECK(count > 0, "cuda:", index, ": ",
               lamina::cuda::kBuilt ? "no GPU found (nvidia-smi lists the GPUs the driver sees)"
                                    : "this build has no CUDA; rebuild with LAMINA_CUDA=ON on a machine with nvcc",
               "; or use the cpu");
  LAMINA_CHECK(index >= 0 && index < count, "cuda:", index, ": no such GPU; the last one is cuda:", count - 1);
  auto state = std::make_shared<State>(DeviceKind::cuda, 0, lamina::cuda::make_allocator(index));
  state->index = index;
  state->deterministic = deterministic;
  state->stream = lamina::cuda::make_stream(index);
  return Device(std::move(state));
}

int Device::cuda_count() { return lamina::cuda::device_count(); }

Device Device::named(std::string_view name, int threads, bool deterministic) {
  if (name == "cpu") return cpu(threads);
  if (name == "cuda") return cuda(0, deterministic);
  constexpr std::string_view kPrefix = "cuda:";
  int index = 0;
  const char* end = name.data() + name.size();
  const bool numbered = name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
                        std::from_chars(name.data() + kPrefix.size(), end, index).ptr == end;
  LAMINA_CHECK(numbered, "device \"", name, "\": expected cpu, cuda or cuda:0");
  return cuda(index, deterministic);
}

Device Device::meta(DeviceKind like) {
  auto state = std::make_shared<State>(DeviceKind::meta, 1, make_counting_allocator());
  state->like = like;
  return Device(std::move(state));
}

DeviceKind Device::kind() const { return state_->kind; }
DeviceKind Device::like() const { return state_->like; }
int Device::index() const { return state_->index; }
Allocator& Device::allocator() const { return *state_->allocator; }
const Threads& Device::threads() const { return state_->threads; }
bool Device::deterministic() const { return state_->deterministic; }
std::optional<int64_t> Device::free_memory() const {
  if (kind() != DeviceKind::cuda) return {};
  const MemoryCounters counters = allocator().counters();
  return lamina::cuda::free_memory(index()) + counters.reserved - counters.live;
}
Stream* Device::stream() const { return state_->stream.get(); }

void Device::synchronize() const {
  if (state_->stream) state_->stream->synchronize();
}

void Device::force_kernel(std::string_view op, std::string_view kernel) const {
  state_->forced_kernels[std::string(op)] = kernel;
  if (kernel.empty()) state_->forced_kernels.erase(std::string(op));
}

std::string_view Device::forced_kernel(std::string_view op) const {
  const auto found = state_->forced_kernels.find(op);
  return found == state_->forced_kernels.end() ? std::string_view() : found->second;
}

void Device::add_work(const Work& work) const {
  state_->flops.fetch_add(work.flops, std::memory_order_relaxed);
  state_->bytes.fetch_add(work.bytes, std::memory_order_relaxed);
}

Work Device::work() const { return {state_->flops.load(), state_->bytes.load()}; }

void Device::reset_work() const {
  state_->flops = 0;
  state_->bytes = 0;
}

std::ostream& operator<<(std::ostream& out, const Device& device) {
  switch (device.kind()) {
    case DeviceKind::cpu: return out << "cpu";
    case DeviceKind::cuda: return out << "cuda:" << device.index();
    case DeviceKind::meta: break;
  }
  return out << "meta";
}

}  // namespace lamina
