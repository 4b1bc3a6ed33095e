#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lamina/autograd/taped_call.h"

namespace lamina::cli {

/// Device, dtype and size class of the benchmarks: sizes of GPU training, sizes for a CPU, or tiny ones.
struct OpBenchSetting {
  enum class Size { gpu, cpu, tiny };
  Device device;
  DType dtype;
  Size size;

  int64_t pick(int64_t gpu, int64_t cpu, int64_t tiny) const {
    return size == Size::gpu ? gpu : size == Size::cpu ? cpu : tiny;
  }
  /// Pseudo-random numbers in [low, high).
  Tensor random(const Shape& shape, float low = -1, float high = 1) const;
  /// Pseudo-random f32 numbers, for small parameters that stay in f32.
  Tensor random_f32(const Shape& shape, float low = -1, float high = 1) const;
  /// Pseudo-random i64 numbers in [0, below).
  Tensor random_ids(const Shape& shape, int64_t below) const;
  /// How many tensors of `bytes` exceed the caches. Cycling through them reads weights from memory, as decoding does.
  int64_t copies_beyond_caches(int64_t bytes) const;
};

/// An operator with its arguments. backward() computes gradients of the leaves; weight gradients are f32, as in
/// training.
struct OpCall {
  std::vector<TapedCall::Leaf> leaves;
  TapedCall::Forward run;
  /// Number of calls after which the same memory is read again.
  int64_t cycle = 1;
};

enum class OpWay { forward, backward, both };
std::string_view name_of(OpWay way);

struct OpBench {
  std::string name;  ///< includes its sizes
  std::vector<OpWay> ways;
  std::function<OpCall(const OpBenchSetting&)> make;
  /// Counts FLOPs and bytes on a meta device if the device cannot know them. Empty: counts the call itself.
  std::function<OpCall(const OpBenchSetting&)> counted = {};
  /// The operator in ops/kernels.def whose kernels forward and backward choose from; "" if there is one kernel.
  std::string forward_choice = {};
  std::string backward_choice = {};
};

/// All benchmarks, in table order.
std::vector<OpBench> op_benches(const OpBenchSetting& setting);
void add_attention_benches(const OpBenchSetting& setting, std::vector<OpBench>& list);
void add_paged_benches(const OpBenchSetting& setting, std::vector<OpBench>& list);
void add_sequence_benches(const OpBenchSetting& setting, std::vector<OpBench>& list);

/// FLOPs and bytes of one call, as reported by the operators.
Work work_of(const OpBench& bench, OpWay way, const OpCall& call, const OpBenchSetting& setting);
/// Median time of one call over about `seconds` of repetitions.
double median_seconds(const OpCall& call, OpWay way, const OpBenchSetting& setting, double seconds);

}  // namespace lamina::cli
