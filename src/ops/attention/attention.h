#pragma once

#include <vector>

#include "lamina/base/philox.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Which keys a query may see, beside causality. Positions are counted from the start of a document. Every kind but
/// `full` needs seq_q <= seq_k.
struct AttentionPattern {
  enum class Kind {
    full,
    /// |i − j| < window (causal: 0 <= i − j < window), plus every key below and every query below `global_tokens`
    /// (Longformer, arXiv:2004.05150; 0 for a plain sliding window).
    window,
    /// Blocks of `block` positions: a query's own and the `window_blocks` nearest on each side, the first
    /// `global_blocks` for and from everybody, and `random_blocks` (at most 1024) drawn per query block from `seed`,
    /// with repetition, among all key blocks (causal: up to the query's own) (BigBird, arXiv:2007.14062).
    blocks,
    /// |i − j| < window or |i − j| a multiple of `stride` (Sparse Transformer, arXiv:1904.10509).
    strided,
  };
  Kind kind = Kind::full;
  int64_t window = 0;
  int64_t global_tokens = 0;
  int64_t block = 64;
  int64_t window_blocks = 1;
  int64_t global_blocks = 1;
  int64_t random_blocks = 0;
  int64_t stride = 0;
  uint64_t seed = 0;

  /// The `draw`-th random key block of a query block, below `key_blocks`: those of the document, or up to the query's
  /// own under causality.
  int64_t random_block(int64_t query_block, int64_t draw, int64_t key_blocks) const;
};

struct AttentionOptions {
  bool causal = true;
  /// Factor on q·k; 0 means 1/sqrt(head_dim of q).
  double scale = 0.0;
  AttentionPattern pattern;
  /// c·tanh(z/c) on the scaled scores, before bias and mask; 0 means none.
  double soft_cap = 0.0;
  /// Probability, below 1, of dropping an attention weight, with its random stream. It is taken as t/65536, t the
  /// nearest whole number below 65536; weights that stay grow by 1/(1 − t/65536).
  ///
  /// Weights are drawn in patches of 16: four queries and four keys, 2c, 2c + 1, 2c + 8 and 2c + 9 of an aligned 16 of
  /// them, c < 4. Query i lies in row i/16 · 4 + i/2 % 4 of the patches, and so do keys in columns. A head has
  /// R = ⌈seq_q/16⌉ · 4 rows of them. The patch in row r, column c of head h in batch row b is drawn by Philox4x32 with
  /// the counter 2³² · ((b · n_heads + h) · R + r) + c: its words after nine rounds, l, and after seven, w. Of the
  /// sixteen half words z, the lower halves of l[0] to l[3], the upper ones of l, the upper ones of w and the lower
  /// ones of w, the weight of query i and key j has bit e = i % 2 · 8 + j/8 % 2 · 4 + i/8 % 2 · 2 + j % 2: its number
  /// is Σ_n 2^n · (bit e of z[n]), and it is dropped where that is below t.
  ///
  /// So numbers do not depend on how kernels cut the work, and 16 are compared at once, bit by bit. Of a 16×16 tile of
  /// weights on tensor cores two lanes have those of a patch between them, keys by queries as well as queries by keys.
  /// Seven rounds are what passes the tests of generators; their bits decide about 255 of 256 weights. Where they are
  /// those of t the words two rounds later decide, which are made of the same 128 bits: what that may leave of
  /// dependence between weights of a patch counts for as little.
  double dropout = 0.0;
  RandomKey dropout_key;
  /// T5: distances are bucketed, bidirectionally when not causal; beyond max_distance one bucket serves all.
  int64_t t5_max_distance = 128;
};

/// Optional tensors; undefined where not used.
struct AttentionExtras {
  /// [n_heads] f32: the score gets − slope · |i − j|. No gradient.
  Tensor alibi_slopes;
  /// [buckets, n_heads]: learned bias by T5 distance bucket (arXiv:1910.10683). Differentiable.
  Tensor t5_bias;
  /// [n_heads]: one more logit per head in the softmax's denominator, which carries no value (attention sink).
  /// Differentiable.
  Tensor sinks;
  /// [documents + 1] i32 or i64, ascending from 0 to seq: packed documents along seq that never see each other.
  /// Applies to every batch row; needs seq_q == seq_k.
  Tensor document_starts;
};

/// softmax(soft_cap(scale · q kᵀ) + bias + mask) v, tiled with an online softmax: nothing of size seq_q × seq_k is
/// kept, forward or backward.
///   q  [batch, seq_q, n_heads, d_qk]
///   k  [batch, seq_k, n_kv_heads, d_qk]     n_heads % n_kv_heads == 0
///   v  [batch, seq_k, n_kv_heads, d_v]
///   returns [batch, seq_q, n_heads, d_v], q's type; f32 (f64) inside.
/// When seq_q != seq_k the queries are the last seq_q positions: query i stands at i + seq_k − seq_q.
/// A query that may see no key gives zeros. Dao et al. 2022, arXiv:2205.14135.
///
/// Backward recomputes the probabilities p from two saved numbers per query; with z the scores after the soft cap:
///   dv = pᵀ dy,  dp = dy vᵀ,  ds = p · (dp − Σ_d dy·y),  dt5[bucket] = Σ ds,  dsink = − Σ_i p_sink · Σ_d dy·y
///   ds ← ds · (1 − (z/c)²) under a soft cap,  dq = scale · ds k,  dk = scale · dsᵀ q
/// Extra memory: three numbers per query and head, and tiles; for bf16 and f16 also dq in f32.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                 const AttentionExtras& extras = {});

/// What the kernels are given. q, k and v are dense along the last dimension, everything else wholly. Small parameters
/// are in the accumulation type, document_starts in i64; undefined where not used. `options.scale` is resolved.
struct AttentionForward {
  Tensor q;
  Tensor k;
  Tensor v;
  AttentionOptions options;
  AttentionExtras extras;
  Tensor y;
  /// [batch, n_heads, seq_q] each, accumulation type: the greatest score m, and 1 / Σ exp(score − m). Kept apart rather
  /// than as log-sum-exp, so that backward gets the very weights of forward.
  Tensor greatest;
  Tensor inverse;
};
struct AttentionBackward {
  AttentionForward forward;
  Tensor dy;
  Tensor dq;
  Tensor dk;
  Tensor dv;
  Tensor dt5_bias;  ///< accumulation type, or undefined
  Tensor dsinks;    ///< accumulation type, or undefined
};

namespace cpu {
void attention_forward(const AttentionForward& args);
void attention_backward(const AttentionBackward& args);
}  // namespace cpu
namespace cuda {
void attention_forward(const AttentionForward& args);
void attention_backward(const AttentionBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
