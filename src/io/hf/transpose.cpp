#include "lamina/io/hf/transpose.h"

#include <algorithm>

namespace lamina::io::hf {
namespace {

/// Tile size. A tile is read row by row into a buffer that fits the L1 cache, then written row by row. So every cache
/// line is fetched once, and few pages are in use at a time.
constexpr int64_t kTile = 64;
/// Prefetch distance in source rows. Consecutive rows are on different pages, which the hardware prefetcher does not
/// follow.
constexpr int64_t kRowsAhead = 12;

/// Transposes into rows [begin, end) of `to`.
template <class T>
void transpose_band(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t begin, int64_t end,
                    int64_t columns) {
  T tile[kTile * kTile];
  const int64_t rows = end - begin;
  for (int64_t left = 0; left < columns; left += kTile) {
    const int64_t width = std::min(kTile, columns - left);
    for (int64_t j = 0; j < width; ++j) {
      const T* source = from + (left + j) * from_stride + begin;
      if (left + j + kRowsAhead < columns) {
        const T* ahead = source + kRowsAhead * from_stride;
        for (int64_t i = 0; i < rows; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(ahead + i);
      }
      for (int64_t i = 0; i < rows; ++i) tile[i * kTile + j] = source[i];
    }
    for (int64_t i = 0; i < rows; ++i) {
      std::copy(tile + i * kTile, tile + i * kTile + width, to + (begin + i) * to_stride + left);
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
      for (int64_t band = begin; band < end; ++band) {
        transpose_band(source, from.strides()[0], target, to.strides()[0], band * kTile,
                       std::min((band + 1) * kTile, to.dim(0)), to.dim(1));
      }
    });
  });
}

}  // namespace lamina::io::hf
