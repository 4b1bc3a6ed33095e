#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Which elements of a head form the pairs that are rotated.
enum class RotaryPairing : uint8_t {
  half_split,   ///< x_i with x_{i + rotary_dim/2}
  interleaved,  ///< x_{2i} with x_{2i + 1}
};

/// Options of rotary().
struct RotaryOptions {
  RotaryPairing pairing = RotaryPairing::half_split;  ///< which elements form a pair
  /// The first `rotary_dim` elements of each head are rotated, the others copied; 0 means all. Even.
  int64_t rotary_dim = 0;
  /// Position of the first token: token s has position offset + s.
  int64_t offset = 0;
  /// Position of each token, [seq] or [batch, seq], i64 or i32; undefined: offset + s.
  Tensor positions;
};

/// Rotary position embedding (RoPE): each pair (a, b) of a head at position p becomes
///   a' = a·cos[p, a] − b·sin[p, a],   b' = b·cos[p, b] + a·sin[p, b]
///   x         [batch, seq, heads, head_dim]   any floating type; may be a slice of a packed projection
///   cos, sin  [positions, rotary_dim/2]       one angle per pair (from rotary_tables), or
///             [positions, rotary_dim]         one entry per element, in the order of the elements
///   returns x's shape and dtype; computed in f32 (f64 for f64). The tables get no gradient.
/// Su et al. 2021, arXiv:2104.09864.
///
/// Backward is the transposed map; with one angle per pair it is the rotation by the negative angle:
///   da = da'·cos[p, a] + db'·sin[p, b],   db = db'·cos[p, b] − da'·sin[p, a]
Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, const RotaryOptions& options = {});

/// rotary() in place, for the first `heads` heads of x [batch, seq, all heads, head_dim]. Rotates q and k within a
/// packed QKV projection and leaves the values unchanged. x must be contiguous, and nothing else may use its old
/// values. Backward overwrites the gradient in the same way.
Tensor rotary_in_place(const Tensor& x, int64_t heads, const Tensor& cos, const Tensor& sin,
                       const RotaryOptions& options = {});

/// Returns rotary_dim, or head_dim if it is 0. Throws if it or the tables do not fit the heads.
int64_t checked_rotary_dim(const char* op, const Tensor& cos, const Tensor& sin, int64_t rotary_dim, int64_t head_dim);

}  // namespace lamina::ops
