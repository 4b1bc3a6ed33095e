#pragma once

#include <memory>
#include <vector>

#include "lamina/base/philox.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Which keys a query may see, in addition to the causal mask. Positions i of a query and j of a key count from the
/// start of a document. Every kind except `full` requires seq_q <= seq_k.
struct AttentionPattern {
  /// The kinds of patterns. Each uses only the parameters that name it below.
  enum class Kind {
    full,  ///< every position
    /// Sliding window: |i − j| < window (causal: 0 <= i − j < window). The first `global_tokens` positions see every
    /// position and are seen by every position (Longformer, arXiv:2004.05150); 0: a plain sliding window.
    window,
    /// Block-sparse attention with blocks of `block` positions (BigBird, arXiv:2007.14062). A query block sees: itself;
    /// `window_blocks` neighbours on each side; the first `global_blocks` and the last `last_blocks` of the document,
    /// which also see every block; and `random_blocks` (at most 1024). The random ones are drawn from `seed` with
    /// replacement among all key blocks (causal: up to the query's own), or given by `table`.
    blocks,
    /// |i − j| < window, or |i − j| is a multiple of `stride` (Sparse Transformer, arXiv:1904.10509).
    strided,
  };
  Kind kind = Kind::full;     ///< which pattern
  int64_t window = 0;         ///< window, strided: size of the window
  int64_t global_tokens = 0;  ///< window: number of global positions
  int64_t block = 64;         ///< blocks: positions per block
  int64_t window_blocks = 1;  ///< blocks: neighbours on each side
  int64_t global_blocks = 1;  ///< blocks: global blocks at the start
  int64_t last_blocks = 0;    ///< blocks: global blocks at the end; must be 0 if causal
  int64_t random_blocks = 0;  ///< blocks: random blocks per query block
  int64_t stride = 0;         ///< strided: distance between visible positions
  uint64_t seed = 0;          ///< blocks: seed of the random blocks
  /// blocks: random key blocks [query blocks, random_blocks] to use instead of drawing them, or null. Only for a single
  /// document with as many queries as keys.
  std::shared_ptr<const std::vector<int32_t>> table;

  /// Returns random key block number `draw` of `query_block`, in [0, key_blocks). `key_blocks` is the number of blocks
  /// of the document or, if causal, of those up to and including the query's own.
  int64_t random_block(int64_t query_block, int64_t draw, int64_t key_blocks) const;
};

/// Options of attention().
struct AttentionOptions {
  bool causal = true;  ///< query i sees only keys up to i
  /// Factor on q·k; 0 means 1/sqrt(head_dim of q).
  double scale = 0.0;
  AttentionPattern pattern;  ///< which keys a query sees
  /// Soft cap c: scaled scores z become c·tanh(z/c), before bias and mask; 0: none.
  double soft_cap = 0.0;
  /// Probability in [0, 1) of dropping an attention weight. It is rounded to t/65536 with an integer t < 65536; kept
  /// weights are scaled by 1/(1 − t/65536).
  ///
  /// The mask is defined as follows, so that it does not depend on the kernel. Random numbers are drawn per patch of 16
  /// weights: 4 queries × 4 keys. Patch index c < 4 of an aligned block of 16 queries (or keys) holds offsets 2c, 2c +
  /// 1, 2c + 8 and 2c + 9. So query i lies in patch row i/16 · 4 + i/2 % 4, and key j in the patch column given by the
  /// same formula. A head has R = ⌈seq_q/16⌉ · 4 patch rows. The patch in row r, column c of head h in batch row b uses
  /// Philox4x32 with counter 2³² · ((b · n_heads + h) · R + r) + c: w is the state after seven rounds, l after nine.
  /// z[0..15] are 16-bit halves: the lower halves of l[0..3], the upper of l, the upper of w, the lower of w. The
  /// weight of query i and key j owns bit e = i % 2 · 8 + j/8 % 2 · 4 + i/8 % 2 · 2 + j % 2 of each. Its random number
  /// is Σ_n 2^n · (bit e of z[n]); the weight is dropped if this is below t.
  ///
  /// This way the mask is independent of tiling, and the 16 numbers of a patch are compared at once, bit-sliced. In a
  /// 16×16 tensor-core tile two lanes share a patch, for queries × keys and for keys × queries. Seven Philox rounds
  /// pass the standard statistical tests and decide about 255 of 256 weights. The words of nine rounds decide only if
  /// those 8 bits equal the upper bits of t, so a correlation within a patch could arise only in these rare cases.
  double dropout = 0.0;
  RandomKey dropout_key;  ///< random stream of dropout
  /// T5 bias: all distances from here on share the last bucket. The buckets are bidirectional unless causal.
  int64_t t5_max_distance = 128;
};

/// Optional tensors; undefined if not used.
struct AttentionExtras {
  /// [n_heads] f32: ALiBi subtracts slope · |i − j| from the score. No gradient.
  Tensor alibi_slopes;
  /// [buckets, n_heads]: learned bias by T5 distance bucket (arXiv:1910.10683). Differentiable.
  Tensor t5_bias;
  /// [n_heads]: attention sinks. Each is one extra logit per head in the softmax denominator, without a value.
  /// Differentiable.
  Tensor sinks;
  /// [documents + 1] i32 or i64, ascending from 0 to seq: starts of packed documents along seq, which do not see each
  /// other, and the end. Applies to every batch row; requires seq_q == seq_k.
  Tensor document_starts;
};

/// Multi-head attention: softmax(soft_cap(scale · q kᵀ) + bias + mask) v, computed in tiles with an online softmax. No
/// seq_q × seq_k matrix is stored, in forward or backward (FlashAttention, Dao et al. 2022, arXiv:2205.14135).
///   q  [batch, seq_q, n_heads, d_qk]
///   k  [batch, seq_k, n_kv_heads, d_qk]     n_heads % n_kv_heads == 0
///   v  [batch, seq_k, n_kv_heads, d_v]
///   returns [batch, seq_q, n_heads, d_v], dtype of q; accumulates in f32 (f64 for f64).
/// If seq_q != seq_k, the queries are the last seq_q positions: query i is at position i + seq_k − seq_q.
/// A query that sees no key returns zeros.
///
/// Backward recomputes the probabilities p from two saved numbers per query and head. With z the scores after the soft
/// cap:
///   dv = pᵀ dy,  dp = dy vᵀ,  ds = p · (dp − Σ_d dy·y),  dt5[bucket] = Σ ds,  dsink = − Σ_i p_sink · Σ_d dy·y
///   ds ← ds · (1 − (z/c)²) if there is a soft cap,  dq = scale · ds k,  dk = scale · dsᵀ q
/// Extra memory: three numbers per query and head, and tiles; for bf16 and f16 also dq in f32.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                 const AttentionExtras& extras = {});

}  // namespace lamina::ops
