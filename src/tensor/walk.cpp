#include "lamina/tensor/walk.h"

#include <algorithm>
#include <cstring>

namespace lamina::cpu {

Walk merge_dimensions(const Tensor& source, const Tensor& target) {
  Walk walk;
  for (int axis = 0; axis < target.rank(); ++axis) {
    const int64_t extent = target.dim(axis);
    if (extent == 1) continue;
    const int64_t from = source.strides()[axis];
    const int64_t to = target.strides()[axis];
    const int last = walk.shape.rank() - 1;
    if (last >= 0 && walk.source_strides[last] == from * extent && walk.target_strides[last] == to * extent) {
      walk.shape[last] *= extent;
      walk.source_strides[last] = from;
      walk.target_strides[last] = to;
    } else {
      walk.shape.push_back(extent);
      walk.source_strides.push_back(from);
      walk.target_strides.push_back(to);
    }
  }
  if (walk.shape.rank() == 0) {
    walk.shape.push_back(1);
    walk.source_strides.push_back(1);
    walk.target_strides.push_back(1);
  }
  return walk;
}

int transposed_axis(const Walk& walk) {
  const int inner = walk.shape.rank() - 1;
  if (walk.source_strides[inner] == 1) return -1;
  for (int axis = inner - 1; axis >= 0; --axis) {
    if (walk.source_strides[axis] == 1 && walk.shape[axis] >= 8 && walk.shape[inner] >= 8) return axis;
  }
  return -1;
}

Offsets outer_offsets(const Walk& walk, int64_t index, int skipped) {
  Offsets at;
  for (int axis = walk.shape.rank() - 2; axis >= 0; --axis) {
    if (axis == skipped) continue;
    const int64_t position = index % walk.shape[axis];
    index /= walk.shape[axis];
    at.source += position * walk.source_strides[axis];
    at.target += position * walk.target_strides[axis];
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

/// walk_runs for a transposing copy. Each source cache line is read once and scattered into the columns of a tile,
/// whose rows are then the runs. Consecutive tiles move across the source, which limits TLB misses. Word has the size
/// of a source element.
template <class Word>
void walk_tiles(const Threads& threads, const Walk& walk, int axis, const Word* source, void* target,
                const RunRef& run) {
  constexpr int64_t kAcross = 64 / sizeof(Word);
  constexpr int64_t kAlong = 64;
  const int inner = walk.shape.rank() - 1;
  const int64_t length = walk.shape[inner];
  const int64_t width = walk.shape[axis];
  const int64_t outer = walk.shape.numel() / (length * width);
  const int64_t lines = (width + kAcross - 1) / kAcross;
  const int64_t band = kAcross * std::clamp<int64_t>(outer * lines / 32, 1, 16);
  const int64_t bands = (width + band - 1) / band;
  const int64_t source_step = walk.source_strides[inner];
  threads.ranges(outer * bands, rows_per_range(length * band, 65536), [&](int64_t begin, int64_t end) {
    alignas(64) std::byte tile[kAcross][kAlong * sizeof(Word)];
    for (int64_t task = begin; task < end; ++task) {
      const Offsets at = outer_offsets(walk, task / bands, axis);
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
              for (int64_t j = 0; j < kAcross; ++j) lay(j);  // constant trip count: unrolled
            } else {
              for (int64_t j = 0; j < across; ++j) lay(j);
            }
          }
          const int64_t to = at.target + first * walk.target_strides[axis] + start * walk.target_strides[inner];
          for (int64_t j = 0; j < across; ++j) {
            run(tile[j], 1, moved(target, to + j * walk.target_strides[axis], run.to_size()),
                walk.target_strides[inner], along);
          }
        }
      }
    }
  });
}

/// Elements are only moved, so an unsigned integer of the same size stands for any type.
void walk_tiles(const Threads& threads, const Walk& walk, int axis, const void* source, void* target,
                const RunRef& run) {
  switch (run.from_size()) {
    case 1: return walk_tiles(threads, walk, axis, static_cast<const uint8_t*>(source), target, run);
    case 2: return walk_tiles(threads, walk, axis, static_cast<const uint16_t*>(source), target, run);
    case 4: return walk_tiles(threads, walk, axis, static_cast<const uint32_t*>(source), target, run);
    default: return walk_tiles(threads, walk, axis, static_cast<const uint64_t*>(source), target, run);
  }
}

}  // namespace

void walk_runs(const Threads& threads, const Walk& walk, const void* source, void* target, const RunRef& run) {
  const int transposed = transposed_axis(walk);
  if (transposed >= 0) return walk_tiles(threads, walk, transposed, source, target, run);
  const int inner = walk.shape.rank() - 1;
  const int64_t length = walk.shape[inner];
  const int64_t runs = walk.shape.numel() / length;
  const int64_t from_stride = walk.source_strides[inner];
  const int64_t to_stride = walk.target_strides[inner];
  const auto run_at = [&](const Offsets& at, int64_t count) {
    run(moved(source, at.source, run.from_size()), from_stride, moved(target, at.target, run.to_size()), to_stride,
        count);
  };
  if (runs == 1) {
    threads.ranges(length, 65536, [&](int64_t begin, int64_t end) {
      run_at({begin * from_stride, begin * to_stride}, end - begin);
    });
    return;
  }
  threads.ranges(runs, rows_per_range(length, 65536), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) run_at(outer_offsets(walk, index, -1), length);
  });
}

}  // namespace lamina::cpu
