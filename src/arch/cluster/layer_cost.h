#pragma once

#include "lamina/arch/cluster/cluster.h"
#include "lamina/arch/cluster/layout.h"
#include "lamina/arch/cluster/model_shape.h"

namespace lamina::arch {

/// Seconds that one micro-batch takes in a layer (or in embedding and head) on one device, by kind of work.
struct PassSeconds {
  double products = 0;   ///< matrix products
  double mixing = 0;     ///< attention or scan
  double memory = 0;     ///< norms, activations, residual additions, gradient accumulation
  double tensor = 0;     ///< tensor-parallel communication
  double context = 0;    ///< context-parallel communication
  double exchange = 0;   ///< all-to-all of expert parallelism
  double recompute = 0;  ///< forward work repeated in backward
  /// Sum of all parts.
  double total() const { return products + mixing + memory + tensor + context + exchange + recompute; }
  PassSeconds& operator+=(const PassSeconds& other);
};
PassSeconds operator*(const PassSeconds& pass, double factor);

/// Bytes of activations that a layer keeps for backward, per micro-batch and device.
struct ActivationBytes {
  double input = 0;   ///< residual stream at the layer's input; full recomputation keeps only this
  double other = 0;   ///< everything else except scores
  double scores = 0;  ///< attention scores, if they are stored; selective recomputation drops them
  /// Part of `other` that selective recomputation can drop, too: outputs of norms and of feed-forward activations.
  double light = 0;
};

/// Cost of one layer on one device, for the tensor, context and expert parallel sizes and the micro-batch of a layout.
struct LayerCost {
  PassSeconds forward;
  PassSeconds backward;  ///< without recomputation
  double light = 0;      ///< seconds to recompute ActivationBytes::light
  ActivationBytes activations;
  double dense = 0;   ///< weights per device, except routed experts
  double expert = 0;  ///< weights of routed experts per device
};

LayerCost layer_cost(const Cluster& cluster, const ModelShape& model, const LayerShape& layer,
                     const TrainingSetup& setup, const Layout& layout);

/// Cost of the token embedding, or of head and loss.
struct OuterCost {
  PassSeconds forward;
  PassSeconds backward;
  double temporary = 0;  ///< bytes in use while it runs
};
OuterCost embedding_cost(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                         const Layout& layout);
/// Cost of the head with softmax and loss. Its weights and logits are divided by vocabulary rows.
OuterCost head_cost(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup, const Layout& layout);

/// Seconds for `batch` products [m, k] · [k, n]: FLOPs at the reachable rate, plus operands at the reachable memory
/// bandwidth, plus a launch. Small products are therefore slower than their FLOPs suggest.
double product_seconds(const Cluster& cluster, const TrainingSetup& setup, double m, double n, double k,
                       double batch = 1);
/// Seconds of a kernel that moves `bytes`.
double memory_seconds(const Cluster& cluster, double bytes);
/// Peak FLOP/s of the setup's type.
double peak_flops(const Cluster& cluster, const TrainingSetup& setup);

/// Tokens of a micro-batch on one device.
double tokens_per_pass(const TrainingSetup& setup, const Layout& layout);

}  // namespace lamina::arch
