#include "lamina/io/hf/transpose.h"

#include <algorithm>

namespace lamina::io::hf {
namespace {

constexpr int64_t kTile = 32;

/// One band of rows of `to`.
template <class T>
void transpose_band(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t begin, int64_t end,
                    int64_t columns) {
  for (int64_t top = begin; top < end; top += kTile) {
    const int64_t bottom = std::min(top + kTile, end);
    for (int64_t left = 0; left < columns; left += kTile) {
      const int64_t right = std::min(left + kTile, columns);
      for (int64_t i = top; i < bottom; ++i) {
        for (int64_t j = left; j < right; ++j) to[i * to_stride + j] = from[j * from_stride + i];
      }
    }
  }
}

}  // namespace

void copy_transposed(const Tensor& from, Tensor& to) {
  const bool fits = from.rank() == 2 && to.rank() == 2 && from.dtype() == to.dtype() && from.dim(0) == to.dim(1) &&
                    from.dim(1) == to.dim(0) && from.strides()[1] == 1 && to.strides()[1] == 1;
  LAMINA_CHECK(fits, "copy_transposed: from ", from.shape(), " of ", from.dtype(), " to ", to.shape(), " of ",
               to.dtype(), "; expected two matrices of one type with dense rows, each the other's transposed");
  to.mark_written("copy_transposed");
  visit_dtype(from.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* source = from.data<T>();
    T* target = to.data<T>();
    const int64_t bands = (to.dim(0) + kTile - 1) / kTile;
    to.device().threads().ranges(bands, 4, [&](int64_t begin, int64_t end) {
      transpose_band(source, from.strides()[0], target, to.strides()[0], begin * kTile,
                     std::min(end * kTile, to.dim(0)), to.dim(1));
    });
  });
}

}  // namespace lamina::io::hf
