#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string_view>

#include "lamina/base/threads.h"
#include "lamina/tensor/allocator.h"

namespace lamina {

/// Kinds of devices. A `meta` device has no memory; its tensors are only shapes.
enum class DeviceKind : uint8_t { cpu, cuda, meta };

/// FLOPs and memory traffic of an operator: the minimum that an ideal machine would need.
struct Work {
  int64_t flops = 0;  ///< floating-point operations
  int64_t bytes = 0;  ///< bytes read and written
};

/// An asynchronous queue of a device. CPU and meta devices run operators synchronously and have none.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void synchronize() = 0;  ///< waits until all queued work is done
};

/// Everything that operators need to run: memory, threads, a queue, counters. A cheap handle to shared state. Two calls
/// of Device::cpu() give independent devices, but operators may combine their tensors.
class Device {
 public:
  /// A CPU device. `threads` 0 means all cores. `allocator` replaces the default one; tests use this to add guard
  /// bands.
  static Device cpu(int threads = 0, std::shared_ptr<Allocator> allocator = nullptr);
  /// A GPU. Throws an Error if the build has no CUDA or the machine no such GPU. Every call creates its own CUDA stream
  /// and memory cache. `deterministic`: every run gives bit-identical results, without cuDNN's faster backward.
  static Device cuda(int index = 0, bool deterministic = false);
  /// Parses "cpu", "cuda" or "cuda:1". `threads` applies to work on the host.
  static Device named(std::string_view name, int threads = 0, bool deterministic = false);
  /// Number of GPUs that Device::cuda can open; 0 in a build without CUDA.
  static int cuda_count();
  /// A device without memory or computation, like PyTorch's meta. Operators check shapes and count allocations and work
  /// as they would on a device of kind `like`.
  static Device meta(DeviceKind like = DeviceKind::cpu);

  DeviceKind kind() const;  ///< cpu, cuda or meta
  /// The kind whose kernels operators choose: kind(), or on a meta device the kind it stands for.
  DeviceKind like() const;
  int index() const;               ///< index of the GPU; 0 for other devices
  Allocator& allocator() const;    ///< allocates memory of this device
  const Threads& threads() const;  ///< worker threads of the host
  /// Whether operators must choose deterministic kernels. Always true on the CPU.
  bool deterministic() const;
  /// Free bytes of GPU memory, including blocks that this device has cached. Empty if the device uses host memory.
  std::optional<int64_t> free_memory() const;
  /// The asynchronous queue; null if operators run synchronously.
  Stream* stream() const;
  void synchronize() const;  ///< waits for queued work; throws the errors that kernels reported

  /// Forces an operator to use a kernel, for tests and benchmarks (ops/kernel_dispatch.h). "" restores the automatic
  /// choice. Not synchronized with operators in other threads.
  void force_kernel(std::string_view op, std::string_view kernel) const;
  /// The forced kernel, or "".
  std::string_view forced_kernel(std::string_view op) const;

  void add_work(const Work& work) const;  ///< adds to the counters
  Work work() const;                      ///< the counters
  void reset_work() const;                ///< sets the counters to 0

  /// Tensors of equal devices can be combined in one operator. Devices without a stream are equal if their kinds are
  /// equal. Devices with a stream are equal only if they are handles of the same device, because work on two streams is
  /// not ordered.
  friend bool operator==(const Device& a, const Device& b) {
    return a.state_ == b.state_ || (a.kind() == b.kind() && a.stream() == nullptr && b.stream() == nullptr);
  }

 private:
  struct State;
  explicit Device(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

std::ostream& operator<<(std::ostream& out, const Device& device);  ///< prints cpu, cuda:0 or meta

}  // namespace lamina
