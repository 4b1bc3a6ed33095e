#pragma once

// Shared by the cases of operators that rotate heads: token positions and the rotation formula.

#include <random>

#include "lamina/ops/position/rotary.h"
#include "support/op_case.h"

namespace lamina::testing {

struct OracleTurn {
  ops::RotaryPairing pairing;
  int64_t dim;       // number of leading elements of a head that are rotated
  bool per_element;  // one table entry per element, not per pair

  /// Rotated element c of a head at `position`; element(i) is the head's i-th element before rotation.
  template <class S, class F>
  S of(const Array<S>& cos, const Array<S>& sin, int64_t position, int64_t c, const F& element) const {
    if (c >= dim) return element(c);
    const bool split = pairing == ops::RotaryPairing::half_split;
    const bool is_first = split ? c < dim / 2 : c % 2 == 0;
    const int64_t partner = split ? (c + dim / 2) % dim : c ^ 1;
    const int64_t pair = split ? c % (dim / 2) : c / 2;
    const int64_t at = position * cos.dim(1) + (per_element ? c : pair);
    const S across = element(partner) * sin[at];
    return element(c) * cos[at] + (is_first ? -across : across);
  }
};

/// Positions below `rows`: none (rank 0), [seq] or [batch, seq].
inline Input oracle_positions(int rank, int64_t batch, int64_t seq, int64_t rows, DType dtype = DType::i64) {
  if (rank == 0) return absent();
  std::mt19937_64 random(5);
  const Shape shape = rank == 1 ? Shape{seq} : Shape{batch, seq};
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& value : values) value = static_cast<double>(random() % static_cast<uint64_t>(rows));
  return integers(shape, values, dtype);
}
/// Position of token `token`, a flat index over all rows.
template <class S>
int64_t oracle_position(int rank, const Array<S>& positions, int64_t offset, int64_t token, int64_t seq) {
  if (rank == 0) return offset + token % seq;
  return static_cast<int64_t>(value_of(positions[rank == 1 ? token % seq : token]));
}

}  // namespace lamina::testing
