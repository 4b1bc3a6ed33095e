#pragma once

#include <vector>

#include "lamina/arch/cluster/layer_cost.h"
#include "lamina/arch/problem.h"

namespace lamina::arch {

/// Bytes on the device that needs most.
struct DeviceMemory {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  ///< kept for backward, of all micro-batches in flight
  double temporary = 0;    ///< logits, a recomputed layer, gathered weights
  double capacity = 0;     ///< bytes of the device that training can use
  double total() const { return weights + gradients + optimizer + activations + temporary; }
  bool fits() const { return total() <= capacity; }
};

/// Seconds of a step on the slowest stage, by what they are spent on.
struct StepSeconds {
  PassSeconds passes;    ///< forward and backward of all micro-batches
  double pipeline = 0;   ///< sends between stages
  double data = 0;       ///< gradients, and weights under ZeRO, as far as nothing hides them
  double optimizer = 0;  ///< the update
  double bubble = 0;     ///< waiting for the first and last micro-batches
  /// Duration of the step.
  double total() const { return passes.total() + pipeline + data + optimizer + bubble; }
};

/// One pipeline stage, for the timeline.
struct StageSeconds {
  PassSeconds forward;   ///< of one micro-batch, all chunks
  PassSeconds backward;  ///< of one micro-batch, with recomputation
};

/// The resource that limits a layout.
enum class Limit : uint8_t { compute, memory_bandwidth, network, bubble, memory };
constexpr auto names_of(Limit) {
  return std::array<std::string_view, 5>{"compute", "memory bandwidth", "network", "bubble", "memory"};
}

/// Memory and time of one training step under a layout.
struct StepEstimate {
  Layout layout;
  DeviceMemory memory;
  StepSeconds seconds;
  double mean_state = 0;     ///< bytes of weights, gradients and optimizer state, mean over the stages
  double micro_batches = 0;  ///< per replica
  double data_volume = 0;    ///< seconds of data-parallel communication before overlap
  double send = 0;           ///< seconds of one message between stages
  double tokens_per_second = 0;
  double flops_per_device = 0;  ///< achieved model FLOP/s; recomputation does not count
  double utilisation = 0;       ///< MFU: flops_per_device / peak
  size_t slowest_stage = 0;
};

/// Costs of the layers under the part of a layout that they depend on: tp, cp, ep, sequence and micro_batch.
struct CostTable {
  std::vector<LayerCost> kinds;
  OuterCost embedding;
  OuterCost head;
};
CostTable cost_table(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup, const Layout& layout);

/// Estimates a step. `costs` belongs to this layout. The layout must pass layout_problems().
StepEstimate estimate_step(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                           const Layout& layout, const CostTable& costs);
/// Estimates a step and computes the costs of the layers itself.
StepEstimate estimate_step(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                           const Layout& layout);

/// Passes of every stage, first to last.
std::vector<StageSeconds> stage_seconds(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                                        const Layout& layout);

/// Number of layers in each of pp · interleave chunks. A remainder goes to the middle, because the first and the last
/// chunk also have the embedding and the head. Chunk i belongs to stage i % pp.
std::vector<int64_t> chunk_layers(int64_t layers, int64_t chunks);

/// Everything that makes a layout impossible for this model and batch on `devices` devices.
std::vector<Problem> layout_problems(const ModelShape& model, const TrainingSetup& setup, const Layout& layout,
                                     int64_t devices);
/// Whether `lamina train` can divide the layers of the model over tp, cp and ep ranks.
bool can_divide(const ArchSpec& spec, const Layout& layout);
/// Whether layout_problems() is empty, without writing messages. The layout must pass can_divide().
bool is_possible(const ModelShape& model, const TrainingSetup& setup, const Layout& layout, int64_t devices);

/// The part of the step that limits an estimate, and a sentence about it.
Limit limit_of(const StepEstimate& estimate);
std::string limit_text(const StepEstimate& estimate);

}  // namespace lamina::arch
