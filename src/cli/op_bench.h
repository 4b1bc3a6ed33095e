#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lamina/autograd/taped_call.h"

namespace lamina::cli {

/// Where operators are timed, and how large they are: as a GPU is used in training, as fits a CPU, or tiny.
struct OpBenchSetting {
  enum class Size { gpu, cpu, tiny };
  Device device;
  DType dtype;
  Size size;

  int64_t pick(int64_t gpu, int64_t cpu, int64_t tiny) const {
    return size == Size::gpu ? gpu : size == Size::cpu ? cpu : tiny;
  }
  /// Numbers that look random, in [low, high).
  Tensor random(const Shape& shape, float low = -1, float high = 1) const;
  /// The same in f32, as small parameters are kept.
  Tensor random_f32(const Shape& shape, float low = -1, float high = 1) const;
  /// i64 in [0, below).
  Tensor random_ids(const Shape& shape, int64_t below) const;
  /// How many tensors of `bytes` no cache holds: weights that are read once a token come from memory.
  int64_t copies_beyond_caches(int64_t bytes) const;
};

/// An operator with its arguments. Leaves are what backward gives gradients of; weights get theirs in f32, as training
/// keeps them.
struct OpCall {
  std::vector<TapedCall::Leaf> leaves;
  TapedCall::Forward run;
  /// Calls after which the same memory is read again.
  int64_t cycle = 1;
};

enum class OpWay { forward, backward, both };
std::string_view name_of(OpWay way);

struct OpBench {
  std::string name;  ///< with its sizes
  std::vector<OpWay> ways;
  std::function<OpCall(const OpBenchSetting&)> make;
  /// What is counted instead, on a meta device, where the device cannot know the work; empty: the call itself.
  std::function<OpCall(const OpBenchSetting&)> counted = {};
};

/// All of them, in the order of the table.
std::vector<OpBench> op_benches(const OpBenchSetting& setting);
void add_attention_benches(const OpBenchSetting& setting, std::vector<OpBench>& list);
void add_sequence_benches(const OpBenchSetting& setting, std::vector<OpBench>& list);

/// Arithmetic and traffic of one call, as the operators announce them.
Work work_of(const OpBench& bench, OpWay way, const OpCall& call, const OpBenchSetting& setting);
/// Median time of one call, over about `seconds` of repetitions.
double median_seconds(const OpCall& call, OpWay way, const OpBenchSetting& setting, double seconds);

}  // namespace lamina::cli
