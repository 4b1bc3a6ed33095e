#pragma once

#include <span>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// What a layer's cache keeps of its tokens: their keys, values or latents, those of a head one behind the other as
/// attention_decode reads them.
struct CachedTokens {
  Tensor numbers;  ///< [batch, heads, room, d] of a floating type, or u8: 8 bits (ops/attention/cache_scales.h)
  Tensor scales;   ///< f32 [batch, heads, room] beside u8, else undefined

  static CachedTokens make(const Shape& shape, DType dtype, const Device& device);

  int64_t room() const { return numbers.dim(2); }
  int64_t bytes() const { return numbers.nbytes() + (scales.defined() ? scales.nbytes() : 0); }
  /// Views of rows.
  CachedTokens rows(int64_t begin, int64_t count) const { return slice(0, begin, count); }
  /// `count` tokens of every row from `begin` on, as attention() takes them: [batch, count, heads, d].
  Tensor read(int64_t begin, int64_t count, DType dtype) const;
  /// `count` tokens of every row from `from` on become the first ones.
  void move_to_front(int64_t from, int64_t count) const;
  void reorder(std::span<const int64_t> sources);

 private:
  CachedTokens slice(int axis, int64_t begin, int64_t length) const;
};

}  // namespace lamina::nn
