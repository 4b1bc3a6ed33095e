#pragma once

#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// A matrix product of a layer: [tokens, in] · [in, out]. Projections of the same input are one product.
struct ProductShape {
  enum class Split : uint8_t { out, in, none };  ///< the dimension that tensor parallelism divides
  double out = 0;
  double in = 0;
  Split split = Split::out;
  double kv_out = 0;     ///< part of `out` for keys and values, which at most `kv_heads` devices divide
  double kv_heads = 1;   ///< key and value heads
  bool experts = false;  ///< one matrix per expert, for the tokens routed to it
};

/// Sizes of one kind of layer that determine its cost, counted from block_weights().
struct LayerShape {
  std::vector<ProductShape> products;
  double weights = 0;    ///< all elements
  double vectors = 0;    ///< elements outside matrix products; every device of a tensor-parallel group holds them
  double tensors = 0;    ///< number of weight tensors; projections of the same input count as one
  double sublayers = 0;  ///< parts of the layer that end with an all-reduce under tensor parallelism
  double norms = 0;      ///< norms over the residual stream

  double heads = 0;     ///< query heads; 0 without attention
  double kv_heads = 0;  ///< key and value heads
  double qk_dim = 0;    ///< width of a query or key head
  double v_dim = 0;     ///< width of a value head
  bool rotates = false;
  double mixing = 0;     ///< forward FLOPs per token of attention or scan, without masked scores
  double ssm_width = 0;  ///< channels of a state space layer

  double ffn_width = 0;  ///< inner width per token: d_ff, or the sum over chosen and shared experts
  bool gated = false;
  int64_t experts = 0;
  double top_k = 0;
};

/// Sizes of a resolved architecture for cost estimates.
struct ModelShape {
  double d_model = 0;
  double vocab = 0;
  double d_embed = 0;
  double embedding = 0;  ///< elements of the token embedding
  double head = 0;       ///< elements of the head; 0 if tied
  double outer = 0;      ///< other weights outside the layers: positions, norms, projections
  double length = 0;     ///< tokens per sequence, for attention costs
  double parameters = 0;
  std::vector<LayerShape> kinds;  ///< the different kinds of layers
  std::vector<size_t> layers;     ///< kind of each layer, in order

  /// Forward FLOPs per token: in the layers, and in the head.
  double layer_flops = 0;
  double head_flops = 0;
  /// layer_flops if attention also computes masked scores (no causal kernel).
  double unmasked_layer_flops = 0;
};

/// Throws an Error if the length exceeds a table of learned positions.
ModelShape model_shape(const ArchSpec& resolved, int64_t length);

}  // namespace lamina::arch
