#include "lamina/arch/cluster/layer_cost.h"

#include <algorithm>

#include "lamina/arch/cluster/collectives.h"

namespace lamina::arch {
namespace {

/// Values that all parts of a layer's cost depend on.
struct LayerContext {
  const Cluster& cluster;
  const ModelShape& model;
  const LayerShape& layer;
  const TrainingSetup& setup;
  const Layout& layout;
  double tp;
  double tokens;  ///< tokens of the micro-batch on one device
  double rows;    ///< tokens of the residual stream on one device
  double bytes;   ///< bytes per weight or activation
};

struct LocalProduct {
  double out;
  double in;
};
LocalProduct local_product(const ProductShape& product, double tp) {
  using Split = ProductShape::Split;
  const double kv = product.kv_out / std::min(tp, product.kv_heads);
  if (product.split == Split::in) return {product.out, product.in / tp};
  return {product.split == Split::none ? product.out + product.kv_out : product.out / tp + kv, product.in};
}

/// Matrix products. Forward: x·W. Backward: dy·Wᵀ and xᵀ·dy.
void add_products(const LayerContext& c, LayerCost& cost) {
  for (const ProductShape& product : c.layer.products) {
    const auto [out, in] = local_product(product, c.tp);
    const double local = product.experts ? static_cast<double>(c.layer.experts / c.layout.ep) : 1;
    const double rows = product.experts ? c.tokens * c.layer.top_k / local : c.tokens;
    cost.forward.products += product_seconds(c.cluster, c.setup, rows, out, in, local);
    cost.backward.products += product_seconds(c.cluster, c.setup, rows, in, out, local) +
                              product_seconds(c.cluster, c.setup, out, in, rows, local);
    (product.experts ? cost.expert : cost.dense) += out * in * local;
    if (c.setup.accumulation == Accumulation::separate) {
      const double each = c.bytes + 2 * c.setup.gradient_bytes();  // read the product, add to the accumulator
      cost.backward.memory += memory_seconds(c.cluster, each * out * in * local);
    }
  }
}

/// Attention whose scores are stored in memory: two products, and softmax and dropout over length × length.
void add_stored_attention(const LayerContext& c, LayerCost& cost) {
  const double length = c.model.length;
  const double batch = c.tokens / length * c.layer.heads / c.tp;
  const double products = product_seconds(c.cluster, c.setup, length, length, c.layer.qk_dim, batch) +
                          product_seconds(c.cluster, c.setup, length, c.layer.v_dim, length, batch);
  const double scores = batch * length * length;
  const double mask = c.setup.dropout ? 1 : 0;
  const double dropout = c.setup.dropout ? memory_seconds(c.cluster, scores * (2 * c.bytes + mask)) : 0;
  cost.forward.mixing += products + memory_seconds(c.cluster, scores * 2 * c.bytes) + dropout;
  cost.backward.mixing += 2 * products + memory_seconds(c.cluster, scores * 3 * c.bytes) + dropout;
  // Stored for backward: the softmax output; with dropout also its mask and output.
  cost.activations.scores += scores * (c.setup.dropout ? 2 * c.bytes + mask : c.bytes);
}

/// Fused attention (scores are not stored), or a state space scan.
void add_fused_mixing(const LayerContext& c, LayerCost& cost) {
  const double flops = c.tokens * c.layer.mixing / c.tp;
  const double peak = peak_flops(c.cluster, c.setup);
  if (c.layer.heads > 0) {
    // Backward recomputes the scores: five products instead of two (arXiv:2307.08691).
    cost.forward.mixing += flops / (peak * c.cluster.efficiency.attention_forward) + c.cluster.efficiency.launch;
    cost.backward.mixing +=
        2.5 * flops / (peak * c.cluster.efficiency.attention_backward) + c.cluster.efficiency.launch;
    cost.activations.other += 4 * c.tokens * c.layer.heads / c.tp;  // log-sum-exp of each row
    return;
  }
  // Memory bandwidth limits scans: they read input, gate and step and write the output of every channel.
  const double channels = c.tokens * c.layer.ssm_width / c.tp;
  cost.forward.mixing += memory_seconds(c.cluster, 4 * c.bytes * channels);
  cost.backward.mixing += memory_seconds(c.cluster, 8 * c.bytes * channels);
}

/// Context parallelism with a ring: keys and values pass round it once in forward; with their gradients in backward.
void add_context(const LayerContext& c, LayerCost& cost) {
  if (c.layout.cp <= 1 || c.layer.heads == 0) return;
  const auto cp = static_cast<double>(c.layout.cp);
  const double heads = c.layer.kv_heads / std::min(c.tp, c.layer.kv_heads);
  const double bytes = c.bytes * c.tokens * cp * heads * (c.layer.qk_dim + c.layer.v_dim);
  const double forward = all_gather_seconds(c.cluster, group_with_stride(c.cluster, cp, c.tp), bytes);
  const auto exposed = [&](double seconds, double beside) {
    return c.setup.overlap ? std::max(0.0, seconds - beside) : seconds;
  };
  // Every further ring step adds its part to the output (or to dq in backward): reads and writes f32.
  const double merged = (cp - 1) * memory_seconds(c.cluster, 8 * c.tokens * c.layer.heads * c.layer.v_dim / c.tp);
  cost.forward.context += exposed(forward, cost.forward.mixing);
  cost.backward.context += exposed(2 * forward, cost.backward.mixing);
  cost.forward.mixing += merged;
  cost.backward.mixing += merged;
}

void add_tensor_parallel(const LayerContext& c, LayerCost& cost) {
  if (c.layout.tp <= 1) return;
  const DeviceGroup group = group_with_stride(c.cluster, c.tp, 1);
  const double bytes = c.bytes * c.tokens * c.model.d_model;
  if (!c.layout.sequence) {
    const double each = c.layer.sublayers * all_reduce_seconds(c.cluster, group, bytes);
    cost.forward.tensor += each;
    cost.backward.tensor += each;
    return;
  }
  const double gather = c.layer.sublayers * all_gather_seconds(c.cluster, group, bytes);
  const double scatter = c.layer.sublayers * reduce_scatter_seconds(c.cluster, group, bytes);
  cost.forward.tensor += gather + scatter;
  // Backward gathers the input once more, for the weight gradients.
  cost.backward.tensor += 2 * gather + scatter;
}

/// Expert parallelism: tokens are sent to their experts and back, in forward and in backward.
void add_exchange(const LayerContext& c, LayerCost& cost) {
  if (c.layer.experts == 0) return;
  const double bytes = c.bytes * c.tokens * c.layer.top_k * c.model.d_model;
  cost.forward.memory += memory_seconds(c.cluster, 4 * bytes);  // sorting by expert and back: read and write
  cost.backward.memory += memory_seconds(c.cluster, 4 * bytes);
  const DeviceGroup group = group_with_stride(c.cluster, static_cast<double>(c.layout.ep), c.tp);
  // With sequence parallelism, each device exchanges its own rows.
  const double own = c.layout.sequence ? bytes / c.tp : bytes;
  const double both_ways = 2 * all_to_all_seconds(c.cluster, group, own);
  cost.forward.exchange += both_ways;
  cost.backward.exchange += both_ways;
}

void add_memory_bound(const LayerContext& c, LayerCost& cost) {
  const double stream = c.rows * c.model.d_model;
  const double b = c.bytes;
  const double mask = c.setup.dropout ? 1 : 0;
  const auto kernels = [&](double count, double bytes) {
    return count > 0 ? count * memory_seconds(c.cluster, bytes) : 0;
  };
  const double inner = c.tokens * c.layer.ffn_width / c.tp;
  const double gates = c.layer.gated ? 1 : 0;
  const double ffn = c.layer.ffn_width > 0 ? 1 : 0;
  // With sequence parallelism, a sublayer's gathered input is stored instead of the norm's output.
  cost.light += kernels(c.layout.sequence ? 0 : c.layer.norms, 2 * b * stream) + kernels(ffn, (2 + gates) * b * inner);
  const double rotated = c.layer.rotates ? c.tokens * c.layer.qk_dim * (c.layer.heads + c.layer.kv_heads) / c.tp : 0;
  cost.forward.memory += kernels(c.layer.norms, 2 * b * stream) +               // read, write
                         kernels(c.layer.sublayers, (3 * b + mask) * stream) +  // branch + residual
                         kernels(ffn, (2 + gates) * b * inner) +                // activation
                         kernels(rotated > 0 ? 1 : 0, 2 * b * rotated);         // RoPE
  cost.backward.memory += kernels(c.layer.norms, 4 * b * stream) +              // x, dy, dx, accumulate
                          kernels(c.layer.sublayers, mask > 0 ? (2 * b + 1) * stream : b * stream) +
                          kernels(ffn, (3 + 2 * gates) * b * inner) + kernels(rotated > 0 ? 1 : 0, 2 * b * rotated);
}

/// Activations kept for backward, as in arXiv:2205.05198, section 4, for any widths: inputs of products, norms and
/// activations, and dropout masks.
void add_activations(const LayerContext& c, LayerCost& cost) {
  const LayerShape& layer = c.layer;
  const double b = c.bytes;
  const double mask = c.setup.dropout ? 1 : 0;
  ActivationBytes& kept = cost.activations;
  const double stream = c.rows * c.model.d_model;
  kept.input = b * stream;
  // Each norm keeps its input, and its output as the next product's input. The first norm's input is the layer's input.
  kept.other += stream * (layer.sublayers * mask + 2 * b * layer.norms) - (layer.norms > 0 ? kept.input : 0);
  double widths =
      layer.heads * (layer.qk_dim + layer.v_dim) + 4 * layer.ssm_width;  // q and the output projection's input
  widths += (2 + (layer.gated ? 1 : 0)) * layer.ffn_width;               // before and after the activation
  const double keys = layer.kv_heads * (layer.qk_dim + layer.v_dim) / std::max(1.0, std::min(c.tp, layer.kv_heads));
  kept.other += b * c.tokens * (widths / c.tp + keys);
  kept.light += b * (c.layout.sequence ? 0 : stream * layer.norms) + b * c.tokens * layer.ffn_width / c.tp;
  kept.other += b * c.tokens * c.model.d_model * layer.top_k * 2 / (c.layout.sequence ? c.tp : 1);  // routed copies
}

}  // namespace

PassSeconds& PassSeconds::operator+=(const PassSeconds& other) {
  products += other.products;
  mixing += other.mixing;
  memory += other.memory;
  tensor += other.tensor;
  context += other.context;
  exchange += other.exchange;
  recompute += other.recompute;
  return *this;
}

PassSeconds operator*(const PassSeconds& pass, double factor) {
  return {pass.products * factor, pass.mixing * factor,   pass.memory * factor,   pass.tensor * factor,
          pass.context * factor,  pass.exchange * factor, pass.recompute * factor};
}

double peak_flops(const Cluster& cluster, const TrainingSetup& setup) {
  const PeakFlops& peak = cluster.device.peak;
  return setup.dtype == SetupDtype::bf16 ? peak.bf16 : setup.dtype == SetupDtype::f16 ? peak.f16 : peak.f32;
}

double product_seconds(const Cluster& cluster, const TrainingSetup& setup, double m, double n, double k, double batch) {
  const double flops = 2 * m * n * k * batch;
  const double bytes = setup.bytes() * (m * k + k * n + m * n) * batch;
  return flops / (peak_flops(cluster, setup) * cluster.efficiency.product) + memory_seconds(cluster, bytes);
}

double memory_seconds(const Cluster& cluster, double bytes) {
  return bytes / (cluster.device.bandwidth * cluster.efficiency.memory) + cluster.efficiency.launch;
}

double tokens_per_pass(const TrainingSetup& setup, const Layout& layout) {
  return static_cast<double>(layout.micro_batch) * static_cast<double>(setup.length) / static_cast<double>(layout.cp);
}

LayerCost layer_cost(const Cluster& cluster, const ModelShape& model, const LayerShape& layer,
                     const TrainingSetup& setup, const Layout& layout) {
  const auto tp = static_cast<double>(layout.tp);
  const double tokens = tokens_per_pass(setup, layout);
  const LayerContext c{cluster,      model, layer, setup, layout, tp, tokens, layout.sequence ? tokens / tp : tokens,
                       setup.bytes()};
  LayerCost cost;
  add_products(c, cost);
  cost.dense += layer.vectors;
  if (layer.heads > 0 && setup.attention == AttentionKernel::stored && layout.cp == 1) {
    add_stored_attention(c, cost);
  } else if (layer.heads > 0 || layer.ssm_width > 0) {
    add_fused_mixing(c, cost);
  }
  add_context(c, cost);
  add_tensor_parallel(c, cost);
  add_exchange(c, cost);
  add_memory_bound(c, cost);
  add_activations(c, cost);
  return cost;
}

OuterCost embedding_cost(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                         const Layout& layout) {
  const double bytes = setup.bytes() * tokens_per_pass(setup, layout) * model.d_model;
  const DeviceGroup group = group_with_stride(cluster, static_cast<double>(layout.tp), 1);
  OuterCost cost;
  cost.forward.memory = memory_seconds(cluster, 2 * bytes);
  cost.backward.memory = memory_seconds(cluster, 2 * bytes);
  cost.forward.tensor = all_reduce_seconds(cluster, group, bytes) / (layout.sequence ? 2 : 1);
  cost.backward.tensor = layout.sequence ? all_gather_seconds(cluster, group, bytes) : 0;
  return cost;
}

OuterCost head_cost(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup, const Layout& layout) {
  const auto tp = static_cast<double>(layout.tp);
  const double tokens = tokens_per_pass(setup, layout);
  const double vocab = model.vocab / tp;
  const double width = model.d_embed;
  const double stream = setup.bytes() * tokens * width;
  const DeviceGroup group = group_with_stride(cluster, tp, 1);
  OuterCost cost;
  cost.forward.products = product_seconds(cluster, setup, tokens, vocab, width);
  cost.backward.products =
      product_seconds(cluster, setup, tokens, width, vocab) + product_seconds(cluster, setup, vocab, width, tokens);
  cost.forward.memory = memory_seconds(cluster, 4 * setup.bytes() * tokens * vocab);  // maximum, sum, loss
  cost.backward.memory = memory_seconds(cluster, 2 * setup.bytes() * tokens * vocab);
  cost.forward.tensor = layout.sequence ? all_gather_seconds(cluster, group, stream) : 0;
  cost.backward.tensor = all_reduce_seconds(cluster, group, stream) / (layout.sequence ? 2 : 1);
  cost.temporary = (4 + setup.bytes()) * tokens * vocab;  // f32 logits and their gradient
  return cost;
}

}  // namespace lamina::arch
