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
  double kv_out = 0;     ///< part of the output that at most `kv_heads` devices divide, in addition to `out`
  double kv_heads = 1;   ///< key and value heads
  bool experts = false;  ///< one matrix per expert, for the tokens routed to it
};

/// Sizes of one kind of layer that decide its cost, counted from block_weights().
struct LayerShape {
  std::vector<ProductShape> products;
  double weights = 0;    ///< all elements
  double vectors = 0;    ///< elements outside products, which every device of a tensor parallel group holds
  double tensors = 0;    ///< weight tensors, projections of the same input counted once
  double sublayers = 0;  ///< regions that end with an all-reduce under tensor parallelism
  double norms = 0;      ///< norms over the residual stream

  double heads = 0;     ///< query heads; 0 without attention
  double kv_heads = 0;  ///< key and value heads
  double qk_dim = 0;    ///< width of a query or key head
  double v_dim = 0;     ///< width of a value head
  bool rotates = false;
  double mixing = 0;     ///< FLOPs per token of attention or scan, forward; masked scores not counted
  double ssm_width = 0;  ///< channels of a state space layer

  double ffn_width = 0;  ///< inner width per token: d_ff, or that of the chosen and shared experts
  bool gated = false;
  int64_t experts = 0;
  double top_k = 0;
};

/// Sizes of a resolved architecture for cost estimates.
struct ModelShape {
  ArchSpec spec;  ///< the architecture: decides what training can divide
  double d_model = 0;
  double vocab = 0;
  double d_embed = 0;
  double embedding = 0;  ///< elements of the token table
  double head = 0;       ///< elements of the head; 0 if tied
  double outer = 0;      ///< other weights outside the layers: positions, norms, projections
  double length = 0;     ///< tokens per sequence, for attention costs
  double parameters = 0;
  std::vector<LayerShape> kinds;  ///< different layers
  std::vector<size_t> layers;     ///< kind of each layer, in order

  /// FLOPs per token of forward in the layers and in the head.
  double layer_flops = 0;
  double head_flops = 0;
  /// layer_flops if masked scores are computed as well (attention without a causal kernel).
  double unmasked_layer_flops = 0;
};

/// Throws Error if the length exceeds a table of learned positions.
ModelShape model_shape(const ArchSpec& resolved, int64_t length);

}  // namespace lamina::arch
