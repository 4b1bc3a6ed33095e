#pragma once

#include "lamina/nn/module.h"
#include "lamina/ops/position/rotary.h"

namespace lamina::nn {

/// Applies RoPE: x ⊙ cos + rotate_half(x) ⊙ sin for half-split pairs, or the equivalent for interleaved pairs.
///   x         [batch, seq, heads, head_dim]
///   cos, sin  [at least seq, head_dim]; row s belongs to token s
///   returns x's shape, dtype and device; computed in f32
Tensor apply_rotary_pos_emb(const Tensor& x, const Tensor& cos, const Tensor& sin,
                            ops::RotaryPairing pairing = ops::RotaryPairing::half_split);

/// Options of NTKAwareRoPE.
struct NTKAwareRoPEOptions {
  double base = 10000.0;  ///< base of the frequencies
  /// Initial length ratio k: the tables cover sequences of up to max_seq_len · ratio tokens. 1 is plain RoPE.
  int64_t ratio = 1;
  /// Behaviour if a sequence exceeds the tables. true: keep the rebuilt tables and their ratio; false: use them only
  /// for that call.
  bool dynamic = false;
  ops::RotaryPairing pairing = ops::RotaryPairing::half_split;  ///< which elements form a pair
};

/// NTK-aware RoPE: the base grows with the length ratio k, so that the lowest frequency is divided by k and the highest
/// is unchanged. Pair i rotates by (c_k · base^(2/d))^(−i) radians per position, with c_k = k^(2/(d−2)) and d =
/// head_dim.
///   cos, sin  [max_seq_len · k, head_dim] f32: non-persistent buffers that move with the module
class NTKAwareRoPE final : public Module {
 public:
  /// `head_dim` must be even. The tables have max_seq_len · ratio rows.
  NTKAwareRoPE(int64_t head_dim, int64_t max_seq_len, const Device& device, const NTKAwareRoPEOptions& options = {});

  /// x [batch, seq, heads, head_dim]; token s is at position offset + s. If offset + seq exceeds max_seq_len · k, the
  /// tables are rebuilt for the smallest even k' with max_seq_len · k' ≥ offset + seq.
  Tensor forward(const Tensor& x, int64_t offset = 0);

  int64_t ratio() const { return ratio_; }    ///< the current k
  const Tensor& cos() const { return cos_; }  ///< [max_seq_len · ratio, head_dim]
  const Tensor& sin() const { return sin_; }  ///< like cos()

 private:
  struct Tables {
    Tensor cos;
    Tensor sin;
  };
  Tables make_tables(int64_t ratio, const Device& device) const;

  int64_t head_dim_;
  int64_t max_seq_len_;
  NTKAwareRoPEOptions options_;
  int64_t ratio_;
  Tensor cos_;
  Tensor sin_;
};

}  // namespace lamina::nn
