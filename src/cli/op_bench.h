#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lamina/autograd/taped_call.h"

namespace lamina::cli {

/// Device, dtype and size class of the benchmarks: sizes for GPU training, sizes for a CPU, or tiny ones.
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
  /// Number of tensors of `bytes` that together exceed the caches. Using them in turn reads weights from memory, as
  /// decoding does.
  int64_t copies_beyond_caches(int64_t bytes) const;
};

/// An operator call with its arguments. backward() computes the gradients of the leaves. Gradients of weights are f32,
/// as in training.
struct OpCall {
  std::vector<TapedCall::Leaf> leaves;
  TapedCall::Forward run;
  /// Number of calls after which the same memory is read again.
  int64_t cycle = 1;
};

enum class OpWay { forward, backward, both };
std::string_view name_of(OpWay way);

/// A benchmark of one operator at one size.
struct OpBench {
  std::string name;  ///< includes its sizes
  std::vector<OpWay> ways;
  std::function<OpCall(const OpBenchSetting&)> make;
  /// If the operator cannot report its FLOPs and bytes on the device: a call to count them on a meta device. Empty:
  /// count the benchmarked call.
  std::function<OpCall(const OpBenchSetting&)> counted = {};
  /// The name in ops/kernels.def of the operator whose kernels forward and backward choose from. "" if there is a
  /// single kernel.
  std::string forward_choice = {};
  std::string backward_choice = {};
};

/// All benchmarks, in the order of the table.
std::vector<OpBench> op_benches(const OpBenchSetting& setting);
void add_attention_benches(const OpBenchSetting& setting, std::vector<OpBench>& list);
void add_paged_benches(const OpBenchSetting& setting, std::vector<OpBench>& list);
void add_sequence_benches(const OpBenchSetting& setting, std::vector<OpBench>& list);

/// FLOPs and bytes of a call, as the operators report them.
Work work_of(const OpBench& bench, OpWay way, const OpCall& call, const OpBenchSetting& setting);
/// Median time of a call. Repeats it for about `seconds`.
double median_seconds(const OpCall& call, OpWay way, const OpBenchSetting& setting, double seconds);

}  // namespace lamina::cli
