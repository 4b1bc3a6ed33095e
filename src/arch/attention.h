#pragma once

#include "lamina/arch/norm.h"
#include "lamina/arch/position.h"

namespace lamina::arch {

struct FullPattern {
  static constexpr std::string_view kKind = "full";
  static constexpr std::string_view kDoc = "every earlier position; every position if not causal";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const FullPattern&) const = default;
};

struct WindowPattern {
  static constexpr std::string_view kKind = "window";
  static constexpr std::string_view kDoc = "the nearest positions, including the query's own";
  int64_t size = 4096;
  static void visit_fields(auto& self, auto&& field) {
    field("size", self.size, "keys with 0 <= i - j < size; on both sides if not causal");
  }
  bool operator==(const WindowPattern&) const = default;
};

struct LongformerPattern {
  static constexpr std::string_view kKind = "longformer";
  static constexpr std::string_view kDoc =
      "a window plus global tokens that attend to all and are seen by all (arXiv:2004.05150)";
  int64_t window = 512;
  int64_t global_tokens = 1;
  bool global_projections = false;
  static void visit_fields(auto& self, auto&& field) {
    field("window", self.window, "keys with 0 <= i - j < window; on both sides if not causal");
    field("global_tokens", self.global_tokens, "number of global tokens, the first ones", kCount);
    field("global_projections", self.global_projections,
          "global tokens attend with query, key and value projections of their own");
  }
  bool operator==(const LongformerPattern&) const = default;
};

/// Where BigBird's random blocks come from.
///   philox  Lamina's generator; all heads use the same blocks
///   numpy   the published code: NumPy's generator, with different blocks for every head and layer, only in
///           training. In inference that code replaces every random block by the first block, whose keys then
///           count 1 + random_blocks times
enum class BlockDraw : uint8_t { philox, numpy };
constexpr auto names_of(BlockDraw) { return std::array<std::string_view, 2>{"philox", "numpy"}; }

struct BigBirdPattern {
  static constexpr std::string_view kKind = "bigbird";
  static constexpr std::string_view kDoc = "block-sparse: window, global and random blocks (arXiv:2007.14062)";
  int64_t block = 64;
  int64_t window_blocks = 1;
  int64_t global_blocks = 1;
  int64_t last_blocks = 0;
  int64_t random_blocks = 2;
  BlockDraw draw = BlockDraw::philox;
  int64_t seed = 0;
  static void visit_fields(auto& self, auto&& field) {
    field("block", self.block, "positions in a block");
    field("window_blocks", self.window_blocks, "nearest blocks on each side, in addition to the query's own", kCount);
    field("global_blocks", self.global_blocks, "number of global blocks, the first ones", kCount);
    field("last_blocks", self.last_blocks, "number of global blocks at the end; not if causal", kCount);
    field("random_blocks", self.random_blocks, "random blocks per query block", Limits{0, 1024});
    field("draw", self.draw,
          "philox: the same blocks for all heads; numpy: as in the published code, by NumPy's generator for every head "
          "and layer in training, and in inference the first block instead, whose keys then count 1 + random_blocks "
          "times");
    field("seed", self.seed, "seed of the random blocks; with numpy the layer's index is added", kCount);
  }
  bool operator==(const BigBirdPattern&) const = default;
};

struct ChunkPattern {
  static constexpr std::string_view kKind = "chunks";
  static constexpr std::string_view kDoc = "positions in the query's own chunk; chunks do not see each other";
  int64_t size = 8192;
  static void visit_fields(auto& self, auto&& field) {
    field("size", self.size, "positions in a chunk: keys with floor(j / size) = floor(i / size)");
  }
  bool operator==(const ChunkPattern&) const = default;
};

struct StridedPattern {
  static constexpr std::string_view kKind = "strided";
  static constexpr std::string_view kDoc = "a window plus every stride-th position before it (arXiv:1904.10509)";
  int64_t window = 128;
  int64_t stride = 128;
  static void visit_fields(auto& self, auto&& field) {
    field("window", self.window, "keys with 0 <= i - j < window; on both sides if not causal");
    field("stride", self.stride, "keys before the window at multiples of this distance are seen, too");
  }
  bool operator==(const StridedPattern&) const = default;
};

/// Which positions a query attends to, among those that causality allows.
using Pattern =
    std::variant<FullPattern, WindowPattern, LongformerPattern, BigBirdPattern, StridedPattern, ChunkPattern>;

struct NoQkNorm {
  static constexpr std::string_view kKind = "none";
  static constexpr std::string_view kDoc = "no norm";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const NoQkNorm&) const = default;
};

struct PerHeadQkNorm {
  static constexpr std::string_view kKind = "per_head";
  static constexpr std::string_view kDoc = "each head's query and key over head_dim";
  std::optional<Norm> norm;
  bool own_weights = false;
  bool after_rope = false;
  static void visit_fields(auto& self, auto&& field) {
    field("norm", self.norm, "default: the block's norm");
    field("own_weights", self.own_weights, "a scale per head, else all heads share one scale of head_dim");
    field("after_rope", self.after_rope, "the norm follows the rotation by rope, else it precedes it");
  }
  bool operator==(const PerHeadQkNorm&) const = default;
};

struct WholeQkNorm {
  static constexpr std::string_view kKind = "whole";
  static constexpr std::string_view kDoc = "the whole projection over heads · head_dim";
  std::optional<Norm> norm;
  bool after_rope = false;
  static void visit_fields(auto& self, auto&& field) {
    field("norm", self.norm, "default: the block's norm");
    field("after_rope", self.after_rope, "the norm follows the rotation by rope, else it precedes it");
  }
  bool operator==(const WholeQkNorm&) const = default;
};

using QkNorm = std::variant<NoQkNorm, PerHeadQkNorm, WholeQkNorm>;  ///< Norm of queries and keys before the product.

/// Query scaling: scores grow with the query's position, so that attention over many keys stays sharp
/// (arXiv:2501.19399).
struct QueryTemperature {
  double scale = 0.1;
  int64_t interval = 8192;
  static void visit_fields(auto& self, auto&& field) {
    field("scale", self.scale, "query i is multiplied by 1 + scale · ln(1 + floor((i + 1) / interval))");
    field("interval", self.interval, "positions with the same factor");
  }
  bool operator==(const QueryTemperature&) const = default;
};

/// Which projections of an attention layer have a bias.
struct AttentionBias {
  static constexpr bool kAllOrNone = true;
  bool q = false;
  bool k = false;
  bool v = false;
  bool o = false;
  static void visit_fields(auto& self, auto&& field) {
    field("q", self.q, "bias of the query projection");
    field("k", self.k, "bias of the key projection");
    field("v", self.v, "bias of the value projection");
    field("o", self.o, "bias of the output projection");
  }
  bool operator==(const AttentionBias&) const = default;
};

/// Multi-head (n_kv_heads = n_heads), grouped-query or multi-query (n_kv_heads = 1) attention.
struct Attention {
  static constexpr std::string_view kKind = "attention";
  static constexpr std::string_view kDoc = "multi-head, grouped-query (arXiv:2305.13245) or multi-query attention";
  int64_t n_heads = 0;
  std::optional<int64_t> n_kv_heads;
  std::optional<int64_t> head_dim;
  std::optional<int64_t> v_head_dim;
  AttentionBias bias;
  QkNorm qk_norm;
  std::optional<double> scale;
  std::optional<double> soft_cap;
  std::optional<QueryTemperature> temperature;
  std::optional<double> clip_qkv;
  Pattern pattern;
  std::optional<bool> causal;
  bool sinks = false;
  bool gate = false;
  std::optional<LayerPosition> position;
  static void visit_fields(auto& self, auto&& field) {
    field("n_heads", self.n_heads, "query heads; required");
    field("n_kv_heads", self.n_kv_heads, "key and value heads, a divisor of n_heads; default n_heads");
    field("head_dim", self.head_dim, "width of a query or key head; default d_model / n_heads");
    field("v_head_dim", self.v_head_dim, "width of a value head; default head_dim");
    field("bias", self.bias, "biases of the projections; true or false for all");
    field("qk_norm", self.qk_norm, "norm of queries and keys before the product");
    field("scale", self.scale, "factor on q·k; default 1/sqrt(head_dim)");
    field("soft_cap", self.soft_cap, "c·tanh(score/c) on the scaled scores; default none");
    field("temperature", self.temperature, "factor on queries that grows with their position; default none");
    field("clip_qkv", self.clip_qkv, "clamps q, k and v to [-c, c]; default none");
    field("pattern", self.pattern, "which positions are seen");
    field("causal", self.causal, "whether a query sees only itself and earlier positions; default the model's");
    field("sinks", self.sinks, "a learned logit per head in the softmax denominator (attention sink)");
    field("gate", self.gate, "multiplies the output of the heads by sigmoid(gate(x)) (arXiv:2505.06708)");
    field("position", self.position, "position encoding of this layer; default the model's");
  }
  bool operator==(const Attention&) const = default;
};

/// Cross-attention: queries come from the decoder's residual stream, keys and values from the last hidden states of
/// another stack. With an encoder, every query attends to the whole source. With `retrieval`, it attends to the
/// neighbours of the last complete chunk. In a neighbour encoder, it attends to the decoder's states of the chunk.
struct CrossAttention {
  int64_t n_heads = 0;
  std::optional<int64_t> n_kv_heads;
  std::optional<int64_t> head_dim;
  AttentionBias bias;
  std::optional<double> scale;
  std::optional<int64_t> d_source;
  std::optional<LayerPosition> position;
  static void visit_fields(auto& self, auto&& field) {
    field("n_heads", self.n_heads, "query heads; required");
    field("n_kv_heads", self.n_kv_heads, "key and value heads, a divisor of n_heads; default n_heads");
    field("head_dim", self.head_dim, "width of a head; default d_model / n_heads");
    field("bias", self.bias, "biases of the projections; true or false for all");
    field("scale", self.scale, "factor on q·k; default 1/sqrt(head_dim)");
    field("d_source", self.d_source, "width of the states that it attends to; default the width of their stack");
    field("position", self.position,
          "position encoding between queries and keys, none or rope; default none, with retrieval rope");
  }
  bool operator==(const CrossAttention&) const = default;
};

/// Multi-head latent attention (arXiv:2405.04434). Keys and values are expanded from one latent of width kv_lora_rank.
/// Only the latent is cached, with a rotated key part of width qk_rope that all heads share.
struct Mla {
  static constexpr std::string_view kKind = "mla";
  static constexpr std::string_view kDoc = "multi-head latent attention (arXiv:2405.04434)";
  int64_t n_heads = 0;
  std::optional<int64_t> q_lora_rank;
  int64_t kv_lora_rank = 512;
  int64_t qk_nope = 128;
  int64_t qk_rope = 64;
  int64_t v_head_dim = 128;
  bool bias = false;
  double norm_eps = 1e-6;
  std::optional<double> scale;
  std::optional<double> soft_cap;
  Pattern pattern;
  std::optional<LayerPosition> position;
  static void visit_fields(auto& self, auto&& field) {
    field("n_heads", self.n_heads, "heads; required");
    field("q_lora_rank", self.q_lora_rank, "latent width of the queries; default none (direct projection)");
    field("kv_lora_rank", self.kv_lora_rank, "width of the cached latent of keys and values");
    field("qk_nope", self.qk_nope, "width of a head's query and key part without rope");
    field("qk_rope", self.qk_rope, "width of the part with rope; all heads share the key's");
    field("v_head_dim", self.v_head_dim, "width of a value head");
    field("bias", self.bias, "biases of the projections into the latents and of the output");
    field("norm_eps", self.norm_eps, "eps of the RMS norms of the latents");
    field("scale", self.scale, "factor on q·k; default 1/sqrt(qk_nope + qk_rope), with yarn's mscale_all_dim · m^2");
    field("soft_cap", self.soft_cap, "c·tanh(score/c) on the scaled scores; default none");
    field("pattern", self.pattern, "which earlier positions are seen");
    field("position", self.position, "position encoding of this layer; default the model's");
  }
  bool operator==(const Mla&) const = default;
};

}  // namespace lamina::arch
