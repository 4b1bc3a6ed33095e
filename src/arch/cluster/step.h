#pragma once

#include <vector>

#include "lamina/arch/cluster/layer_cost.h"
#include "lamina/arch/problem.h"

namespace lamina::arch {

/// Memory in bytes on the device that needs the most.
struct DeviceMemory {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  ///< kept for backward, for all micro-batches in flight
  double temporary = 0;    ///< logits, a recomputed layer, gathered weights
  double capacity = 0;     ///< bytes of the device that training can use
  double total() const { return weights + gradients + optimizer + activations + temporary; }
  bool fits() const { return total() <= capacity; }
};

/// Seconds of a step on the slowest stage, by kind of work.
struct StepSeconds {
  PassSeconds passes;    ///< forward and backward of all micro-batches
  double pipeline = 0;   ///< sends between stages
  double data = 0;       ///< gradient reduction, and weight gathers under ZeRO, without the overlapped part
  double optimizer = 0;  ///< optimizer update
  double bubble = 0;     ///< idle time while the first and last micro-batches pass the pipeline
  /// Duration of the step.
  double total() const { return passes.total() + pipeline + data + optimizer + bubble; }
};

/// Seconds of one pipeline stage, for the timeline.
struct StageSeconds {
  PassSeconds forward;   ///< one micro-batch through all chunks
  PassSeconds backward;  ///< one micro-batch through all chunks, including recomputation
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
  double mean_state = 0;     ///< bytes of weights, gradients and optimizer state; mean over the stages
  double micro_batches = 0;  ///< per replica
  double data_volume = 0;    ///< seconds of data-parallel communication before overlap
  double send = 0;           ///< seconds of one message between stages
  double tokens_per_second = 0;
  double flops_per_device = 0;  ///< achieved model FLOP/s; recomputation does not count
  double utilisation = 0;       ///< MFU: flops_per_device / peak
  size_t slowest_stage = 0;
};

/// Costs of the layers for one combination of tp, cp, ep, sequence and micro_batch.
struct CostTable {
  std::vector<LayerCost> kinds;
  OuterCost embedding;
  OuterCost head;
};
CostTable cost_table(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup, const Layout& layout);

/// Estimates a step. `costs` must be computed for this layout. The layout must pass layout_problems().
StepEstimate estimate_step(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                           const Layout& layout, const CostTable& costs);
/// Estimates a step, including the costs of the layers.
StepEstimate estimate_step(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                           const Layout& layout);

/// Seconds of every stage, from first to last.
std::vector<StageSeconds> stage_seconds(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                                        const Layout& layout);

/// Number of layers in each of pp · interleave chunks. A remainder goes to the middle chunks, because the first and
/// last one also have the embedding and the head. Chunk i belongs to stage i % pp.
std::vector<int64_t> chunk_layers(int64_t layers, int64_t chunks);

/// All reasons why a layout is impossible for this model and batch on `devices` devices.
std::vector<Problem> layout_problems(const ModelShape& model, const TrainingSetup& setup, const Layout& layout,
                                     int64_t devices);
/// Whether layout_problems() is empty; builds no messages.
bool is_possible(const ModelShape& model, const TrainingSetup& setup, const Layout& layout, int64_t devices);

/// The resource that limits an estimate. limit_text() gives a sentence about it.
Limit limit_of(const StepEstimate& estimate);
std::string limit_text(const StepEstimate& estimate);

}  // namespace lamina::arch
