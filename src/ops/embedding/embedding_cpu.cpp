// Forward copies rows, past the caches when the result is larger than they are. Backward sorts the positions by id
// (a stable counting sort), cuts the table into ranges of rows of about equal work and blocks of columns, and sums each
// row's positions in order: every element is summed by one thread in one order, whatever the number of threads, and a
// frequent id is still shared between them by its columns.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/embedding/embedding_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/embedding/embedding.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target

constexpr int64_t kColumns = 256;

/// Copies a row whose start and length are multiples of 64 bytes without reading what it overwrites.
HWY_INLINE void stream_row(const std::byte* from, std::byte* to, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < bytes; i += lanes) {
    hn::Stream(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from + i)), d, reinterpret_cast<uint8_t*>(to + i));
  }
}

void gather(const EmbeddingForward& args) {
  const int64_t rows = args.table.dim(0);
  const int64_t width = args.table.dim(1) * static_cast<int64_t>(size_of(args.table.dtype()));
  const int64_t* ids = args.ids.data<int64_t>();
  const auto* table = static_cast<const std::byte*>(args.table.raw());
  auto* y = static_cast<std::byte*>(args.y.raw());
  if (args.y.numel() == 0) return;
  // Smaller results are read again by the next operator before they leave the cache.
  constexpr int64_t kBeyondCaches = int64_t{32} << 20;
  const bool stream = args.y.nbytes() >= kBeyondCaches && width % 64 == 0 && reinterpret_cast<uintptr_t>(y) % 64 == 0;
  args.y.device().threads().ranges(args.ids.numel(), rows_per_range(width, 65536),
                                   [&](int64_t begin, int64_t end) HWY_ATTR {
                                     for (int64_t i = begin; i < end; ++i) {
                                       const int64_t row = ids[i] - args.first_row;
                                       if (row < 0 || row >= rows) {
                                         std::memset(y + i * width, 0, static_cast<size_t>(width));
                                       } else if (stream) {
                                         stream_row(table + row * width, y + i * width, width);
                                       } else {
                                         std::memcpy(y + i * width, table + row * width, static_cast<size_t>(width));
                                       }
                                     }
                                     if (stream) hwy::FlushStream();
                                   });
}

/// The positions of each row's ids, row after row: those of row r are order[starts[r]] … order[starts[r + 1] - 1].
struct Sorted {
  Tensor starts;
  Tensor order;
};

Sorted sort_by_row(const EmbeddingBackward& args) {
  const int64_t rows = args.dtable.dim(0);
  const int64_t count = args.ids.numel();
  const int64_t* ids = args.ids.data<int64_t>();
  const Sorted sorted{Tensor::zeros({rows + 2}, DType::i64, args.dy.device()),
                      Tensor::empty({count}, DType::i64, args.dy.device())};
  // Counted two places ahead: while positions are dealt out, next[r] walks from the start of row r to that of row r
  // + 1.
  int64_t* next = sorted.starts.data<int64_t>() + 1;
  int64_t* order = sorted.order.data<int64_t>();
  const auto held = [&](int64_t row) { return row >= 0 && row < rows; };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = ids[i] - args.first_row;
    if (held(row)) ++next[row + 1];
  }
  for (int64_t r = 0; r < rows; ++r) next[r + 1] += next[r];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = ids[i] - args.first_row;
    if (held(row)) order[next[row]++] = i;
  }
  return sorted;
}

/// Rows at which ranges of about equal work begin, and the end.
std::vector<int64_t> cut_rows(const int64_t* starts, int64_t rows) {
  const int64_t share = std::max<int64_t>(64, (rows + starts[rows]) / 64);
  std::vector<int64_t> cuts{0};
  for (int64_t r = 1; r < rows; ++r) {
    if (r - cuts.back() + starts[r] - starts[cuts.back()] >= share) cuts.push_back(r);
  }
  cuts.push_back(rows);
  return cuts;
}

template <class T, class G>
void scatter(const EmbeddingBackward& args) {
  const int64_t rows = args.dtable.dim(0);
  const int64_t width = args.dtable.dim(1);
  if (rows == 0 || width == 0) return;
  const Sorted sorted = sort_by_row(args);
  const int64_t* starts = sorted.starts.data<int64_t>();
  const int64_t* order = sorted.order.data<int64_t>();
  const T* dy = args.dy.data<T>();
  G* dtable = args.dtable.data<G>();
  const std::vector<int64_t> cuts = cut_rows(starts, rows);
  const int64_t blocks = (width + kColumns - 1) / kColumns;
  args.dy.device().threads().tasks(static_cast<int64_t>(cuts.size() - 1) * blocks, [&](int64_t task) HWY_ATTR {
    const ComputeTag<T> d;
    HWY_ALIGN Accumulate<T> sum[kColumns];
    const int64_t first = task % blocks * kColumns;
    const int64_t columns = std::min(kColumns, width - first);
    const auto range = static_cast<size_t>(task / blocks);
    for (int64_t r = cuts[range]; r < cuts[range + 1]; ++r) {
      G* target = dtable + r * width + first;
      if (starts[r] == starts[r + 1]) {
        if (!args.accumulate) std::fill(target, target + columns, G{});
        continue;
      }
      std::memset(sum, 0, sizeof sum);
      for (int64_t p = starts[r]; p < starts[r + 1]; ++p) {
        const T* from = dy + order[p] * width + first;
        for_vectors(d, columns, [&](int64_t i, size_t n) HWY_ATTR {
          hn::Store(hn::Add(hn::Load(d, sum + i), load_n(d, from + i, n)), d, sum + i);
        });
      }
      for_vectors(d, columns, [&](int64_t i, size_t n) HWY_ATTR {
        auto total = hn::Load(d, sum + i);
        if (args.accumulate) total = hn::Add(total, load_n(d, target + i, n));
        store_n(d, total, target + i, n);
      });
    }
  });
}

void scatter_add(const EmbeddingBackward& args) {
  visit_floating(args.dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.dtable.dtype() == args.dy.dtype()) {
      scatter<T, T>(args);
    } else {
      scatter<T, Accumulate<T>>(args);
    }
  });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(gather);
HWY_EXPORT(scatter_add);

namespace {

/// [i, j, …] of the element at `flat` in row-major order.
Shape index_of(int64_t flat, const Shape& shape) {
  Shape index = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

void check_ids(const Tensor& ids, int64_t vocab) {
  const int64_t* first = ids.data<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    LAMINA_CHECK(first[i] >= 0 && first[i] < vocab, "embedding: the id at position ", index_of(i, ids.shape()), " is ",
                 first[i], "; expected an id in [0, ", vocab, "); use the tokenizer of the same model");
  }
}

}  // namespace

namespace cpu {
void embedding_forward(const EmbeddingForward& args) {
  check_ids(args.ids, args.vocab);
  HWY_DYNAMIC_DISPATCH(gather)(args);
}
void embedding_backward(const EmbeddingBackward& args) { HWY_DYNAMIC_DISPATCH(scatter_add)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
