#include "lamina/tensor/merged_dims.h"

#include <algorithm>
#include <cstring>

namespace lamina::cpu {

MergedDims merge_dimensions(const Tensor& source, const Tensor& target) {
  MergedDims dims;
  for (int axis = 0; axis < target.rank(); ++axis) {
    const int64_t extent = target.dim(axis);
    if (extent == 1) continue;
    const int64_t from = source.strides()[axis];
    const int64_t to = target.strides()[axis];
    const int last = dims.shape.rank() - 1;
    if (last >= 0 && dims.source_strides[last] == from * extent && dims.target_strides[last] == to * extent) {
      dims.shape[last] *= extent;
      dims.source_strides[last] = from;
      dims.target_strides[last] = to;
    } else {
      dims.shape.push_back(extent);
      dims.source_strides.push_back(from);
      dims.target_strides.push_back(to);
    }
  }
  if (dims.shape.rank() == 0) {
    dims.shape.push_back(1);
    dims.source_strides.push_back(1);
    dims.target_strides.push_back(1);
  }
  return dims;
}

int transposed_axis(const MergedDims& dims) {
  const int inner = dims.shape.rank() - 1;
  if (dims.source_strides[inner] == 1) return -1;
  for (int axis = inner - 1; axis >= 0; --axis) {
    if (dims.source_strides[axis] == 1 && dims.shape[axis] >= 8 && dims.shape[inner] >= 8) return axis;
  }
  return -1;
}

Offsets outer_offsets(const MergedDims& dims, int64_t index, int skipped) {
  Offsets at;
  for (int axis = dims.shape.rank() - 2; axis >= 0; --axis) {
    if (axis == skipped) continue;
    const int64_t position = index % dims.shape[axis];
    index /= dims.shape[axis];
    at.source += position * dims.source_strides[axis];
    at.target += position * dims.target_strides[axis];
  }
  return at;
}

namespace {

const void* moved(const void* from, int64_t elements, size_t size) {
  return static_cast<const std::byte*>(from) + elements * static_cast<int64_t>(size);
}
void* moved(void* to, int64_t elements, size_t size) {
  return static_cast<std::byte*>(to) + elements * static_cast<int64_t>(size);
}

/// for_each_run() for a transposing copy. Each source cache line is read once and scattered into the columns of a tile,
/// whose rows are then passed to `run`. Consecutive tiles move across the source, which limits TLB misses. Word is an
/// integer of the size of a source element.
template <class Word>
void for_each_tile(const Threads& threads, const MergedDims& dims, int axis, const Word* source, void* target,
                   const RunRef& run) {
  constexpr int64_t kAcross = 64 / sizeof(Word);
  constexpr int64_t kAlong = 64;
  const int inner = dims.shape.rank() - 1;
  const int64_t length = dims.shape[inner];
  const int64_t width = dims.shape[axis];
  const int64_t outer = dims.shape.numel() / (length * width);
  const int64_t lines = (width + kAcross - 1) / kAcross;
  const int64_t band = kAcross * std::clamp<int64_t>(outer * lines / 32, 1, 16);
  const int64_t bands = (width + band - 1) / band;
  const int64_t source_step = dims.source_strides[inner];
  threads.ranges(outer * bands, rows_per_range(length * band), [&](int64_t begin, int64_t end) {
    alignas(64) std::byte tile[kAcross][kAlong * sizeof(Word)];
    for (int64_t task = begin; task < end; ++task) {
      const Offsets at = outer_offsets(dims, task / bands, axis);
      const int64_t stop = std::min(width, task % bands * band + band);
      for (int64_t start = 0; start < length; start += kAlong) {
        const int64_t along = std::min(kAlong, length - start);
        for (int64_t first = task % bands * band; first < stop; first += kAcross) {
          const int64_t across = std::min(kAcross, stop - first);
          const Word* from = source + at.source + first + start * source_step;
          for (int64_t i = 0; i < along; ++i) {
            const Word* line = from + i * source_step;
            __builtin_prefetch(line + kAcross);  // next tile's line; prefetching past the end is harmless
            const auto lay = [&](int64_t j) { std::memcpy(tile[j] + i * sizeof(Word), line + j, sizeof(Word)); };
            if (across == kAcross) {
              for (int64_t j = 0; j < kAcross; ++j) lay(j);  // constant trip count, so that the loop is unrolled
            } else {
              for (int64_t j = 0; j < across; ++j) lay(j);
            }
          }
          const int64_t to = at.target + first * dims.target_strides[axis] + start * dims.target_strides[inner];
          for (int64_t j = 0; j < across; ++j) {
            run(tile[j], 1, moved(target, to + j * dims.target_strides[axis], run.to_size()),
                dims.target_strides[inner], along);
          }
        }
      }
    }
  });
}

/// Elements are only moved, so an unsigned integer of the same size can represent any type.
void for_each_tile(const Threads& threads, const MergedDims& dims, int axis, const void* source, void* target,
                   const RunRef& run) {
  switch (run.from_size()) {
    case 1: return for_each_tile(threads, dims, axis, static_cast<const uint8_t*>(source), target, run);
    case 2: return for_each_tile(threads, dims, axis, static_cast<const uint16_t*>(source), target, run);
    case 4: return for_each_tile(threads, dims, axis, static_cast<const uint32_t*>(source), target, run);
    default: return for_each_tile(threads, dims, axis, static_cast<const uint64_t*>(source), target, run);
  }
}

}  // namespace

void for_each_run(const Threads& threads, const MergedDims& dims, const void* source, void* target, const RunRef& run) {
  const int transposed = transposed_axis(dims);
  if (transposed >= 0) return for_each_tile(threads, dims, transposed, source, target, run);
  const int inner = dims.shape.rank() - 1;
  const int64_t length = dims.shape[inner];
  const int64_t runs = dims.shape.numel() / length;
  const int64_t from_stride = dims.source_strides[inner];
  const int64_t to_stride = dims.target_strides[inner];
  const auto run_at = [&](const Offsets& at, int64_t count) {
    run(moved(source, at.source, run.from_size()), from_stride, moved(target, at.target, run.to_size()), to_stride,
        count);
  };
  if (runs == 1) {
    threads.ranges(length, 16384, [&](int64_t begin, int64_t end) {
      run_at({begin * from_stride, begin * to_stride}, end - begin);
    });
    return;
  }
  threads.ranges(runs, rows_per_range(length), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) run_at(outer_offsets(dims, index, -1), length);
  });
}

}  // namespace lamina::cpu
