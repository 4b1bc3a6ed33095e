#pragma once

#include <span>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Cached keys, values or latents of one layer. The tokens of a head are contiguous, which attention_decode requires.
struct CachedTokens {
  Tensor numbers;  ///< [batch, heads, room, d], floating point, or u8 if quantized (ops/attention/cache_scales.h)
  Tensor scales;   ///< [batch, heads, room] f32 for u8; undefined otherwise

  static CachedTokens make(const Shape& shape, DType dtype, const Device& device);

  int64_t room() const { return numbers.dim(2); }
  int64_t bytes() const { return numbers.nbytes() + (scales.defined() ? scales.nbytes() : 0); }
  /// View of the rows [begin, begin + count).
  CachedTokens rows(int64_t begin, int64_t count) const { return slice(0, begin, count); }
  /// Copies `count` tokens of every row from `begin` on, in the layout of attention(): [batch, count, heads, d].
  Tensor read(int64_t begin, int64_t count, DType dtype) const;
  /// Moves `count` tokens of every row from index `from` to the front.
  void move_to_front(int64_t from, int64_t count) const;
  void reorder(std::span<const int64_t> sources);

 private:
  CachedTokens slice(int axis, int64_t begin, int64_t length) const;
};

}  // namespace lamina::nn
