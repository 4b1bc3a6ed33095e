#pragma once

#include <span>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Cached keys, values or latents of one layer. The tokens of a head are contiguous, as attention_decode reads them.
struct CachedTokens {
  Tensor numbers;  ///< [batch, heads, room, d], floating or u8 for 8 bits (ops/attention/cache_scales.h)
  Tensor scales;   ///< f32 [batch, heads, room] for u8, else undefined

  static CachedTokens make(const Shape& shape, DType dtype, const Device& device);

  int64_t room() const { return numbers.dim(2); }
  int64_t bytes() const { return numbers.nbytes() + (scales.defined() ? scales.nbytes() : 0); }
  /// View of the rows [begin, begin + count).
  CachedTokens rows(int64_t begin, int64_t count) const { return slice(0, begin, count); }
  /// `count` tokens of every row starting at `begin`, in the layout of attention(): [batch, count, heads, d].
  Tensor read(int64_t begin, int64_t count, DType dtype) const;
  /// Moves `count` tokens of every row, starting at `from`, to the front.
  void move_to_front(int64_t from, int64_t count) const;
  void reorder(std::span<const int64_t> sources);

 private:
  CachedTokens slice(int axis, int64_t begin, int64_t length) const;
};

}  // namespace lamina::nn
