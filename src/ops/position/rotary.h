#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Which elements of a head form the pairs that are rotated.
enum class RotaryPairing : uint8_t {
  half_split,   ///< x_i with x_{i + rotary_dim/2}
  interleaved,  ///< x_{2i} with x_{2i + 1}
};

struct RotaryOptions {
  RotaryPairing pairing = RotaryPairing::half_split;
  /// The first `rotary_dim` elements of each head are rotated, the others copied; 0 means all. Even.
  int64_t rotary_dim = 0;
  /// Position of the first token: token s stands at offset + s.
  int64_t offset = 0;
  /// [seq] or [batch, seq], i64 or i32: the position of each token instead, row of the tables; undefined: offset + s.
  Tensor positions;
};

/// Rotary position embedding: each pair (a, b) of a head at position p becomes
///   a' = a·cos[p, a] − b·sin[p, a],   b' = b·cos[p, b] + a·sin[p, b]
///   x         [batch, seq, heads, head_dim]   any floating type; may be a slice of a joined projection
///   cos, sin  [positions, rotary_dim/2]       one angle per pair (what rotary_tables makes), or
///             [positions, rotary_dim]         one entry per element, laid out as the elements are
///   returns x's shape and type; computed in f32 (f64 for f64). The tables get no gradient.
/// Su et al. 2021, arXiv:2104.09864.
///
/// Backward is the transposed map, for one angle per pair the rotation by the negative angle:
///   da = da'·cos[p, a] + db'·sin[p, b],   db = db'·cos[p, b] − da'·sin[p, a]
Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, const RotaryOptions& options = {});

/// The same for the first `heads` heads of x [batch, seq, all heads, head_dim], in x's own memory: what a joined
/// projection gives is rotated where it lies, the values behind the rotated heads staying what they are. x is dense,
/// and nothing else may need its values. Backward overwrites the gradient in the same way.
Tensor rotary_in_place(const Tensor& x, int64_t heads, const Tensor& cos, const Tensor& sin,
                       const RotaryOptions& options = {});

/// The rotary dimension that 0 stands for; throws where it or the tables do not fit the heads.
int64_t checked_rotary_dim(const char* op, const Tensor& cos, const Tensor& sin, int64_t rotary_dim, int64_t head_dim);

/// What the kernel is given, forward and backward alike.
struct RotaryArgs {
  Tensor x;  ///< last dimension dense
  Tensor cos;
  Tensor sin;        ///< dense, accumulation type
  Tensor positions;  ///< dense i64, [seq] or [batch, seq], or undefined
  int64_t offset;
  int64_t rotary_dim;
  RotaryPairing pairing;
  bool transposed;  ///< apply the backward map
  Tensor y;         ///< last dimension dense; may be x itself
};

/// All but x and y, which fit the options; throws where they do not.
RotaryArgs checked_rotary(const char* op, const Tensor& x, const Tensor& cos, const Tensor& sin,
                          const RotaryOptions& options);

namespace cpu {
void rotary(const RotaryArgs& args);
}  // namespace cpu
namespace cuda {
void rotary(const RotaryArgs& args);
}  // namespace cuda

}  // namespace lamina::ops
