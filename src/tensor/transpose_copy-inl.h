// Transposing copies of f32: the source is contiguous along an outer dimension. Squares are transposed in registers.
// Each source cache line is read once; target lines are written whole, with streaming stores if the target is large.
#if defined(LAMINA_TENSOR_TRANSPOSE_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_TENSOR_TRANSPOSE_COPY_INL_H_
#undef LAMINA_TENSOR_TRANSPOSE_COPY_INL_H_
#else
#define LAMINA_TENSOR_TRANSPOSE_COPY_INL_H_
#endif

#include "lamina/base/simd_stream-inl.h"
#include "lamina/base/transpose-inl.h"
#include "lamina/tensor/merged_dims.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::cpu::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

using SquareTag = hn::CappedTag<float, 16>;
inline constexpr int64_t kSquare = static_cast<int64_t>(hn::MaxLanes(SquareTag()));
inline constexpr int64_t kTileAlong = 64;    // elements of a target row in one tile: a few cache lines
inline constexpr int64_t kBandAcross = 256;  // target rows in one task
inline constexpr int64_t kSquaresAhead = 4;

/// to[j·to_step + i] = from[i·from_step + j] for i, j in [0, kSquare).
HWY_INLINE void copy_square(const float* from, int64_t from_step, float* to, int64_t to_step, bool streaming) {
  const SquareTag d;
  hn::Vec<SquareTag> row[kSquare];
#pragma GCC unroll 16
  for (int i = 0; i < kSquare; ++i) {
    row[i] = hn::LoadU(d, from + i * from_step);
    __builtin_prefetch(from + i * from_step + kSquaresAhead * kSquare);
  }
  transpose_square(d, row);
#pragma GCC unroll 16
  for (int j = 0; j < kSquare; ++j) {
    streaming ? hn::Stream(row[j], d, to + j * to_step) : hn::StoreU(row[j], d, to + j * to_step);
  }
}

/// Copies the remainder at the edges that fills no square.
inline void copy_corner(const float* from, int64_t from_step, float* to, int64_t to_step, int64_t along,
                        int64_t across) {
  for (int64_t j = 0; j < across; ++j) {
    for (int64_t i = 0; i < along; ++i) to[j * to_step + i] = from[i * from_step + j];
  }
}

/// Copies if the innermost dimension of `dims` is contiguous in the target and dimension `axis` is contiguous in the
/// source.
inline void transpose_copy(const Threads& threads, const MergedDims& dims, int axis, const float* source, float* target,
                           bool large) {
  const int inner = dims.shape.rank() - 1;
  const int64_t length = dims.shape[inner];
  const int64_t width = dims.shape[axis];
  const int64_t bands = (width + kBandAcross - 1) / kBandAcross;
  const int64_t from_step = dims.source_strides[inner];
  const int64_t to_step = dims.target_strides[axis];
  threads.ranges(dims.shape.numel() / (length * width) * bands, rows_per_range(length * kBandAcross, 65536),
                 [&](int64_t begin, int64_t end) HWY_ATTR {
                   for (int64_t task = begin; task < end; ++task) {
                     const Offsets at = outer_offsets(dims, task / bands, axis);
                     const int64_t first = task % bands * kBandAcross;
                     const int64_t stop = std::min(width, first + kBandAcross);
                     const bool streaming =
                         large && to_step % 16 == 0 && reinterpret_cast<uintptr_t>(target + at.target) % 64 == 0;
                     for (int64_t tile = 0; tile < length; tile += kTileAlong) {
                       const int64_t tile_end = std::min(length, tile + kTileAlong);
                       for (int64_t j = first; j < stop; j += kSquare) {
                         for (int64_t i = tile; i < tile_end; i += kSquare) {
                           const float* from = source + at.source + i * from_step + j;
                           float* to = target + at.target + j * to_step + i;
                           if (i + kSquare <= tile_end && j + kSquare <= stop) {
                             copy_square(from, from_step, to, to_step, streaming);
                           } else {
                             copy_corner(from, from_step, to, to_step, std::min(kSquare, tile_end - i),
                                         std::min(kSquare, stop - j));
                           }
                         }
                       }
                     }
                     if (streaming) hwy::FlushStream();
                   }
                 });
}

}  // namespace lamina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
