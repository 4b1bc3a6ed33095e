#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string_view>

#include "lamina/base/threads.h"
#include "lamina/tensor/allocator.h"

namespace lamina {

enum class DeviceKind : uint8_t { cpu, cuda, meta };

/// Arithmetic and memory traffic that operators announce: what a perfect machine would have to do.
struct Work {
  int64_t flops = 0;
  int64_t bytes = 0;
};

/// Queue of a device that runs behind the host. The CPU and meta devices run each operator to its end and have none.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void synchronize() = 0;
};

/// Everything operators need to run somewhere: memory, threads, a stream, counters. A cheap handle to shared state;
/// two calls of Device::cpu() give two independent devices, and tensors of both may be mixed.
class Device {
 public:
  /// `threads` 0 means all cores. An allocator of one's own may be given, as the tests do to plant guard bands.
  static Device cpu(int threads = 0, std::shared_ptr<Allocator> allocator = nullptr);
  /// A GPU; an error where this build has no CUDA or the machine no such device. Every call makes a queue and a cache
  /// of memory of its own. `deterministic`: the same bits in every run, at the price of cuDNN's faster backward.
  static Device cuda(int index = 0, bool deterministic = false);
  /// "cpu", "cuda" or "cuda:1", as commands take it; `threads` for what runs on the host.
  static Device named(std::string_view name, int threads = 0, bool deterministic = false);
  /// GPUs that Device::cuda can open: 0 in a build without CUDA.
  static int cuda_count();
  /// Shapes without memory: operators check, allocate and count as they would on a device of kind `like`, and compute
  /// nothing.
  static Device meta(DeviceKind like = DeviceKind::cpu);

  DeviceKind kind() const;
  /// The kind whose choices operators make: its own, or that a meta device stands for.
  DeviceKind like() const;
  int index() const;
  Allocator& allocator() const;
  const Threads& threads() const;
  /// Operators may only choose kernels that give the same bits in every run. Always so on the CPU.
  bool deterministic() const;
  /// Bytes of a GPU's own memory that nobody holds, those cached here included; nothing where memory is the host's.
  std::optional<int64_t> free_memory() const;
  /// Null where operators run synchronously.
  Stream* stream() const;
  void synchronize() const;

  void add_work(const Work& work) const;
  Work work() const;
  void reset_work() const;

  /// Tensors of equal devices can meet in one operator. Devices without a stream are equal if their kinds are. Devices
  /// with a stream are equal only if they are handles of one device: work on two streams is not ordered.
  friend bool operator==(const Device& a, const Device& b) {
    return a.state_ == b.state_ || (a.kind() == b.kind() && a.stream() == nullptr && b.stream() == nullptr);
  }

 private:
  struct State;
  explicit Device(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

std::ostream& operator<<(std::ostream& out, const Device& device);

}  // namespace lamina
