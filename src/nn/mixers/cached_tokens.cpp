#include "lamina/nn/mixers/cached_tokens.h"

#include "lamina/nn/layer_cache.h"
#include "lamina/ops/attention/cache_scales.h"

namespace lamina::nn {

CachedTokens CachedTokens::make(const Shape& shape, DType dtype, const Device& device) {
  CachedTokens made{Tensor::empty(shape, dtype, device), Tensor()};
  if (dtype == DType::u8) made.scales = Tensor::empty({shape[0], shape[1], shape[2]}, DType::f32, device);
  return made;
}

CachedTokens CachedTokens::slice(int axis, int64_t begin, int64_t length) const {
  return {numbers.slice(axis, begin, length), scales.defined() ? scales.slice(axis, begin, length) : Tensor()};
}

Tensor CachedTokens::read(int64_t begin, int64_t count, DType dtype) const {
  const CachedTokens some = slice(2, begin, count);
  const Tensor tokens = some.numbers.transpose(1, 2);
  return scales.defined() ? ops::dequantize(tokens, some.scales.transpose(1, 2), dtype) : tokens.to(dtype);
}

void CachedTokens::move_to_front(int64_t from, int64_t count) const {
  if (count == 0) return;
  numbers.slice(2, 0, count).copy_(numbers.slice(2, from, count).clone());
  if (scales.defined()) scales.slice(2, 0, count).copy_(scales.slice(2, from, count).clone());
}

void CachedTokens::reorder(std::span<const int64_t> sources) {
  reorder_rows(numbers, sources);
  if (scales.defined()) reorder_rows(scales, sources);
}

}  // namespace lamina::nn
