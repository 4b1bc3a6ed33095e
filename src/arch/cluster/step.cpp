#include "lamina/arch/cluster/step.h"

#include <algorithm>
#include <cmath>

#include "lamina/arch/cluster/collectives.h"

namespace lamina::arch {
namespace {

/// Number of layers of each kind in every stage.
struct StageCounts {
  size_t kinds;
  std::vector<double> counts;
  double at(size_t stage, size_t kind) const { return counts[stage * kinds + kind]; }
};

StageCounts count_stages(const ModelShape& model, const Layout& layout) {
  const auto stages = static_cast<size_t>(layout.pp);
  StageCounts result{model.kinds.size(), std::vector<double>(stages * model.kinds.size())};
  size_t layer = 0;
  size_t chunk = 0;
  for (const int64_t size : chunk_layers(static_cast<int64_t>(model.layers.size()), layout.pp * layout.interleave)) {
    for (int64_t i = 0; i < size; ++i) ++result.counts[(chunk % stages) * result.kinds + model.layers[layer++]];
    ++chunk;
  }
  return result;
}

double recomputed_seconds(const LayerCost& cost, Recompute recompute) {
  if (recompute == Recompute::full) return cost.forward.total();
  if (recompute == Recompute::none) return 0;
  return cost.activations.scores > 0 ? cost.forward.mixing : cost.light;
}

double kept_bytes(const LayerCost& cost, Recompute recompute) {
  const ActivationBytes& bytes = cost.activations;
  if (recompute == Recompute::full) return bytes.input;
  if (recompute == Recompute::none) return bytes.input + bytes.other + bytes.scores;
  return bytes.input + bytes.other - (bytes.scores > 0 ? 0 : bytes.light);
}

/// Number of weights of a stage that one device holds.
struct StageWeights {
  double dense = 0;
  double expert = 0;
};

class StepModel {
 public:
  StepModel(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup, const Layout& layout,
            const CostTable& costs)
      : cluster_(cluster),
        model_(model),
        setup_(setup),
        layout_(layout),
        costs_(costs),
        counts_(count_stages(model, layout)),
        stages_(static_cast<size_t>(layout.pp)),
        tp_(static_cast<double>(layout.tp)),
        micro_batches_(static_cast<double>(setup.batch) / static_cast<double>(layout.dp * layout.micro_batch)),
        group_(group_with_stride(cluster, static_cast<double>(layout.dp * layout.cp), static_cast<double>(layout.tp))),
        expert_group_(group_with_stride(cluster, group_.size / static_cast<double>(layout.ep),
                                        static_cast<double>(layout.tp * layout.ep))) {}

  StepEstimate estimate() {
    StepEstimate result;
    result.layout = layout_;
    result.micro_batches = micro_batches_;
    const StageSeconds slowest = find_slowest(result.slowest_stage);
    PassSeconds both = slowest.forward;
    both += slowest.backward;
    result.seconds.passes = both * micro_batches_;
    add_pipeline(result);
    const StageWeights weights = weights_of(result.slowest_stage);
    add_data(stage(result.slowest_stage), weights, result);
    const double states = setup_.optimizer_bytes();
    // Reads and writes the state and the weights, reads the gradients twice (norm, update), and clears them.
    const double bytes = 2 * states + 2 * setup_.bytes() + 3 * setup_.gradient_bytes();
    const double share = layout_.zero >= 1 ? weights.dense / group_.size + weights.expert / expert_group_.size
                                           : weights.dense + weights.expert;
    result.seconds.optimizer = memory_seconds(cluster_, bytes * share);
    result.memory = largest_memory();
    result.mean_state = mean_state();
    const double seconds = result.seconds.total();
    const double tokens = static_cast<double>(setup_.batch) * static_cast<double>(setup_.length);
    result.tokens_per_second = tokens / seconds;
    result.flops_per_device =
        3 * tokens * (model_.layer_flops + model_.head_flops) / seconds / static_cast<double>(layout_.devices());
    result.utilisation = result.flops_per_device / peak_flops(cluster_, setup_);
    return result;
  }

  StageSeconds stage(size_t index) const {
    StageSeconds passes;
    for (size_t kind = 0; kind < counts_.kinds; ++kind) {
      const double layers = counts_.at(index, kind);
      if (layers == 0) continue;
      const LayerCost& cost = costs_.kinds[kind];
      passes.forward += cost.forward * layers;
      passes.backward += cost.backward * layers;
      passes.backward.recompute += layers * recomputed_seconds(cost, layout_.recompute);
    }
    if (index == 0) {
      passes.forward += costs_.embedding.forward;
      passes.backward += costs_.embedding.backward;
    }
    if (index + 1 == stages_) {
      passes.forward += costs_.head.forward;
      passes.backward += costs_.head.backward;
    }
    return passes;
  }

 private:
  StageSeconds find_slowest(size_t& slowest) {
    StageSeconds longest;
    double most = -1;
    for (size_t i = 0; i < stages_; ++i) {
      const StageSeconds passes = stage(i);
      const double seconds = passes.forward.total() + passes.backward.total();
      all_stages_ += seconds;
      if (seconds <= most) continue;
      most = seconds;
      longest = passes;
      slowest = i;
    }
    slowest_seconds_ = most;
    return longest;
  }

  /// Sends between stages, and the bubble: the slowest stage waits while one micro-batch passes the other stages, at
  /// the beginning and at the end, in steps of one chunk. Each micro-batch is sent forward and backward once per chunk.
  void add_pipeline(StepEstimate& result) const {
    if (layout_.pp <= 1) return;
    const auto chunks = static_cast<double>(layout_.interleave);
    const double bytes = setup_.bytes() * tokens_per_pass(setup_, layout_) * model_.d_model;
    const bool same_node = layout_.devices() <= cluster_.devices_per_node;
    // Every device of a tensor-parallel group sends its part. Without sequence parallelism, the receivers gather the
    // parts.
    double send = send_seconds(cluster_, same_node, bytes / tp_);
    if (!layout_.sequence) send += all_gather_seconds(cluster_, group_with_stride(cluster_, tp_, 1), bytes);
    result.send = send;
    const auto stages = static_cast<double>(layout_.pp);
    const double sends = chunks * micro_batches_ + (stages - 1) / chunks;
    // Only sends in the steady state overlap with other work. Sends of the warm-up and the end are waited for.
    const double warm_up = layout_.interleave > 1 ? 2 * (stages - 1) + (chunks - 1) * stages : stages - 1;
    result.seconds.pipeline = 2 * send * (setup_.overlap ? std::min(sends, warm_up) : sends);
    result.seconds.bubble = (all_stages_ - slowest_seconds_) / chunks;
  }

  /// Data-parallel communication. Gradients are reduced once per step, or after every micro-batch under ZeRO-2 and 3.
  /// ZeRO-1 and 2 gather the updated weights once per step; ZeRO-3 gathers every layer in forward and in backward.
  void add_data(const StageSeconds& passes, const StageWeights& weights, StepEstimate& result) const {
    if (group_.size <= 1) return;
    const double gradient = setup_.gradient_bytes();
    const double weight = setup_.bytes();
    const auto both = [&](auto collective, double bytes, double messages) {
      const double dense = collective(cluster_, group_, bytes * weights.dense, messages);
      if (weights.expert == 0) return dense;
      return dense + collective(cluster_, expert_group_, bytes * weights.expert, messages);
    };
    const double messages = layout_.zero == 3 ? gather_messages(result.slowest_stage) : 1;
    const double reduce = both(reduce_scatter_seconds, gradient, messages);
    const double gather = both(all_gather_seconds, weight, messages);
    const double forward = passes.forward.total();
    const double backward = passes.backward.total();
    const auto exposed = [this](double seconds, double beside) {
      return setup_.overlap ? std::max(0.0, seconds - beside) : seconds;
    };
    if (layout_.zero == 0) {
      const double all = all_reduce_seconds(cluster_, group_, gradient * weights.dense) +
                         all_reduce_seconds(cluster_, expert_group_, gradient * weights.expert);
      result.data_volume = all;
      result.seconds.data = exposed(all, backward);
      return;
    }
    const double times = layout_.zero == 1 ? 1 : micro_batches_;
    if (layout_.zero < 3) {
      result.data_volume = times * reduce + gather;
      result.seconds.data = times * exposed(reduce, backward) + exposed(gather, forward);
      return;
    }
    result.data_volume = times * (reduce + 2 * gather);
    result.seconds.data = times * (exposed(gather, forward) + exposed(gather + reduce, backward));
  }

  double gather_messages(size_t index) const {
    double messages = 0;
    for (size_t kind = 0; kind < counts_.kinds; ++kind) {
      messages += counts_.at(index, kind) * (setup_.gather == GatherUnit::weight ? model_.kinds[kind].tensors : 1);
    }
    return messages;
  }

  StageWeights weights_of(size_t index) const {
    StageWeights weights;
    for (size_t kind = 0; kind < counts_.kinds; ++kind) {
      weights.dense += counts_.at(index, kind) * costs_.kinds[kind].dense;
      weights.expert += counts_.at(index, kind) * costs_.kinds[kind].expert;
    }
    const bool first = index == 0;
    const bool last = index + 1 == stages_;
    if (first) weights.dense += model_.embedding / tp_ + model_.outer;
    // If the head is tied but on another stage, it is a copy of the token embedding.
    if (last) weights.dense += model_.head > 0 ? model_.head / tp_ : first ? 0 : model_.embedding / tp_;
    return weights;
  }

  /// Number of micro-batches whose activations stage `index` keeps at once (arXiv:2104.04473, arXiv:2205.05198).
  double in_flight(size_t index) const {
    const auto behind = static_cast<double>(stages_ - index);
    if (layout_.interleave == 1) return std::min(micro_batches_, behind);
    const auto chunks = static_cast<double>(layout_.interleave);
    const double passes = 2 * (behind - 1) + (chunks - 1) * static_cast<double>(stages_) + 1;
    return std::min(micro_batches_ * chunks, passes) / chunks;
  }

  DeviceMemory memory_of(size_t index) const {
    const StageWeights weights = weights_of(index);
    const auto shared = [&](int64_t from) {
      return layout_.zero >= from ? weights.dense / group_.size + weights.expert / expert_group_.size
                                  : weights.dense + weights.expert;
    };
    DeviceMemory memory;
    memory.capacity = cluster_.device.memory - cluster_.device.reserved;
    memory.weights = setup_.bytes() * shared(3);
    memory.gradients = setup_.gradient_bytes() * shared(2);
    memory.optimizer = setup_.optimizer_bytes() * shared(1);
    double layer_weights = 0;
    for (size_t kind = 0; kind < counts_.kinds; ++kind) {
      const double layers = counts_.at(index, kind);
      if (layers == 0) continue;
      const LayerCost& cost = costs_.kinds[kind];
      memory.activations += layers * kept_bytes(cost, layout_.recompute) * in_flight(index);
      // A layer that is being recomputed temporarily has all of its activations.
      const double again = kept_bytes(cost, Recompute::none) - kept_bytes(cost, layout_.recompute);
      memory.temporary = std::max(memory.temporary, again);
      layer_weights = std::max(layer_weights, cost.dense + cost.expert);
    }
    if (index + 1 == stages_) memory.temporary += costs_.head.temporary;
    if (layout_.zero == 3) memory.temporary += 2 * layer_weights * (setup_.bytes() + setup_.gradient_bytes());
    if (layout_.zero == 2) memory.temporary += layer_weights * setup_.gradient_bytes();
    return memory;
  }

  DeviceMemory largest_memory() const {
    DeviceMemory largest;
    for (size_t i = 0; i < stages_; ++i) {
      const DeviceMemory memory = memory_of(i);
      if (memory.total() >= largest.total()) largest = memory;
    }
    return largest;
  }

  double mean_state() const {
    double sum = 0;
    for (size_t i = 0; i < stages_; ++i) {
      const DeviceMemory memory = memory_of(i);
      sum += memory.weights + memory.gradients + memory.optimizer;
    }
    return sum / static_cast<double>(stages_);
  }

  const Cluster& cluster_;
  const ModelShape& model_;
  const TrainingSetup& setup_;
  const Layout& layout_;
  const CostTable& costs_;
  StageCounts counts_;
  size_t stages_;
  double tp_;
  double micro_batches_;
  DeviceGroup group_;         ///< devices that hold copies of the dense weights
  DeviceGroup expert_group_;  ///< devices that hold copies of the same experts
  double all_stages_ = 0;
  double slowest_seconds_ = 0;
};

}  // namespace

std::vector<int64_t> chunk_layers(int64_t layers, int64_t chunks) {
  const int64_t rest = layers % chunks;
  const int64_t first = (chunks - rest) / 2;
  std::vector<int64_t> sizes(static_cast<size_t>(chunks), layers / chunks);
  for (int64_t i = first; i < first + rest; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

CostTable cost_table(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                     const Layout& layout) {
  CostTable table;
  for (const LayerShape& kind : model.kinds) table.kinds.push_back(layer_cost(cluster, model, kind, setup, layout));
  table.embedding = embedding_cost(cluster, model, setup, layout);
  table.head = head_cost(cluster, model, setup, layout);
  return table;
}

StepEstimate estimate_step(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                           const Layout& layout, const CostTable& costs) {
  return StepModel(cluster, model, setup, layout, costs).estimate();
}

StepEstimate estimate_step(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                           const Layout& layout) {
  return estimate_step(cluster, model, setup, layout, cost_table(cluster, model, setup, layout));
}

std::vector<StageSeconds> stage_seconds(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                                        const Layout& layout) {
  const CostTable costs = cost_table(cluster, model, setup, layout);
  const StepModel step(cluster, model, setup, layout, costs);
  std::vector<StageSeconds> stages;
  for (size_t i = 0; i < static_cast<size_t>(layout.pp); ++i) stages.push_back(step.stage(i));
  return stages;
}

}  // namespace lamina::arch
