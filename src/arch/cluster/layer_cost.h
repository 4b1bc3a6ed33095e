#pragma once

#include "lamina/arch/cluster/cluster.h"
#include "lamina/arch/cluster/layout.h"
#include "lamina/arch/cluster/model_shape.h"

namespace lamina::arch {

/// Seconds of one micro-batch in a layer (or in embedding and head) on one device, by what they are spent on.
struct PassSeconds {
  double products = 0;   ///< matrix products
  double mixing = 0;     ///< attention or scan
  double memory = 0;     ///< norms, activations, residual additions, gradient accumulation
  double tensor = 0;     ///< tensor-parallel communication
  double context = 0;    ///< context-parallel communication
  double exchange = 0;   ///< all-to-all of experts
  double recompute = 0;  ///< forward work done again in backward
  /// Sum of all parts.
  double total() const { return products + mixing + memory + tensor + context + exchange + recompute; }
  PassSeconds& operator+=(const PassSeconds& other);
};
PassSeconds operator*(const PassSeconds& pass, double factor);

/// Bytes of activations that a layer keeps for backward, per micro-batch and device.
struct ActivationBytes {
  double input = 0;   ///< residual stream at the layer's input: all that full recomputation keeps
  double other = 0;   ///< everything else except scores
  double scores = 0;  ///< attention scores, if they are stored: what selective recomputation drops
  /// Of `other`: outputs of norms and of feed-forward activations, what selective recomputation drops otherwise.
  double light = 0;
};

/// Cost of one layer under the tensor, context and expert parallel sizes and the micro-batch of a layout.
struct LayerCost {
  PassSeconds forward;
  PassSeconds backward;  ///< without recomputation
  double light = 0;      ///< seconds to compute ActivationBytes::light again
  ActivationBytes activations;
  double dense = 0;   ///< weights per device, without routed experts
  double expert = 0;  ///< weights of routed experts per device
};

LayerCost layer_cost(const Cluster& cluster, const ModelShape& model, const LayerShape& layer,
                     const TrainingSetup& setup, const Layout& layout);

/// Cost of the token table, or of head and loss.
struct OuterCost {
  PassSeconds forward;
  PassSeconds backward;
  double temporary = 0;  ///< bytes used while it runs
};
OuterCost embedding_cost(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                         const Layout& layout);
/// The head with its softmax and loss; its weights and logits are divided by vocabulary.
OuterCost head_cost(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup, const Layout& layout);

/// Seconds of `batch` products [m, k] · [k, n]: FLOPs at the peak's share, plus operands at the memory's share, plus a
/// launch. Small products are therefore slower than their FLOPs say.
double product_seconds(const Cluster& cluster, const TrainingSetup& setup, double m, double n, double k,
                       double batch = 1);
/// Seconds of a kernel that moves `bytes`.
double memory_seconds(const Cluster& cluster, double bytes);
/// Peak FLOP/s of the setup's type.
double peak_flops(const Cluster& cluster, const TrainingSetup& setup);

/// Tokens of a micro-batch on one device.
double tokens_per_pass(const TrainingSetup& setup, const Layout& layout);

}  // namespace lamina::arch
