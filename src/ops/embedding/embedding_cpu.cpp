// Forward copies rows, with streaming stores if the result exceeds the caches.
//
// Backward sorts the positions by id with a stable counting sort. It splits the table into ranges of rows with about
// equal work, and into blocks of columns so that even a frequent id is shared by several threads. A row's positions are
// summed in order, four at a time. Every element is summed by one thread in a fixed order, so results do not depend on
// the number of threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/embedding/embedding_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/base/simd_stream-inl.h"
#include "lamina/ops/embedding/embedding_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Copies a row with streaming stores. Its start and length are multiples of 64 bytes. Prefetches `later`, the source
/// of a row to be copied soon, because hardware prefetchers cannot predict which rows follow.
HWY_INLINE void stream_row(const uint8_t* from, const uint8_t* later, uint8_t* to, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < bytes; i += lanes) {
    hwy::Prefetch(later + i);
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
  }
}

void gather(const EmbeddingForward& args) {
  if (args.y.numel() == 0) return;
  const int64_t rows = args.table.dim(0);
  const int64_t width = args.table.dim(1) * static_cast<int64_t>(size_of(args.table.dtype()));
  const int64_t* ids = args.ids.data<int64_t>();
  const auto* table = static_cast<const uint8_t*>(args.table.raw());
  auto* y = static_cast<uint8_t*>(args.y.raw());
  const bool streaming =
      exceeds_last_level_cache(args.y.nbytes()) && width % 64 == 0 && reinterpret_cast<uintptr_t>(y) % 64 == 0;
  const auto source = [&](int64_t i) -> const uint8_t* {
    const int64_t row = ids[i] - args.first_row;
    return row >= 0 && row < rows ? table + row * width : nullptr;
  };
  const auto copy_rows = [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t* from = source(i);
      if (from == nullptr) {
        std::memset(y + i * width, 0, static_cast<size_t>(width));
      } else if (streaming) {
        const uint8_t* later = i + 2 < end ? source(i + 2) : nullptr;
        stream_row(from, later != nullptr ? later : from, y + i * width, width);
      } else {
        std::memcpy(y + i * width, from, static_cast<size_t>(width));
      }
    }
    if (streaming) hwy::FlushStream();
  };
  args.y.device().threads().ranges(args.ids.numel(), rows_per_range(width, 65536), copy_rows);
}

/// Positions sorted by row: those of row r are order[starts[r]] … order[starts[r + 1] - 1].
struct Sorted {
  Tensor starts;
  Tensor order;
};

Sorted sort_by_row(const EmbeddingBackward& args) {
  const int64_t rows = args.dtable.dim(0);
  const int64_t count = args.ids.numel();
  const int64_t* ids = args.ids.data<int64_t>();
  Sorted sorted{Tensor::zeros({rows + 2}, DType::i64, args.dy.device()),
                Tensor::empty({count}, DType::i64, args.dy.device())};
  // Counts are stored one index higher: next[r] then advances from the first position of row r to that of row r + 1.
  int64_t* next = sorted.starts.data<int64_t>() + 1;
  int64_t* order = sorted.order.data<int64_t>();
  const int64_t padding = args.padding < 0 ? -1 : args.padding - args.first_row;
  const auto counts = [&](int64_t row) { return row >= 0 && row < rows && row != padding; };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = ids[i] - args.first_row;
    if (counts(row)) ++next[row + 1];
  }
  for (int64_t r = 0; r < rows; ++r) next[r + 1] += next[r];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = ids[i] - args.first_row;
    if (counts(row)) order[next[row]++] = i;
  }
  return sorted;
}

/// How the table is split among tasks. `rows` holds the first row of each range, and the end. Columns are split into
/// blocks, which are narrow if one id is so frequent that its row alone would keep a thread busy.
struct Cut {
  std::vector<int64_t> rows{0};
  int64_t columns;
};

constexpr int64_t kMostColumns = 1024;
constexpr int64_t kFewColumns = 128;

Cut cut_table(const int64_t* starts, int64_t rows) {
  Cut cut;
  const int64_t share = std::max<int64_t>(64, (rows + starts[rows]) / 64);
  int64_t longest = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t last = cut.rows.back();
    if (r - last + starts[r] - starts[last] >= share) cut.rows.push_back(r);
    longest = std::max(longest, starts[r + 1] - starts[r]);
  }
  cut.rows.push_back(rows);
  cut.columns = longest > 2 * share ? kFewColumns : kMostColumns;
  return cut;
}

/// sum[c] += rows[0][c] + rows[1][c] + …, added one after the other; if `first`, the sum starts with rows[0]. Meanwhile
/// prefetches the rows in `later`.
template <int kRows, class T>
HWY_INLINE void add_rows(const T* const* rows, const T* const* later, bool first, int64_t columns, Accumulate<T>* sum) {
  const ComputeTag<T> d;
  for_vectors(d, columns, [&](int64_t i, size_t n) HWY_ATTR {
    auto total = load_n(d, rows[0] + i, n);
    if (!first) total = hn::Add(hn::Load(d, sum + i), total);
    for (int k = 1; k < kRows; ++k) total = hn::Add(total, load_n(d, rows[k] + i, n));
    for (int k = 0; k < kRows; ++k) hwy::Prefetch(later[k] + i);
    hn::Store(total, d, sum + i);
  });
}

/// sum = Σ dy[order[i]] for i in [begin, end), which is not empty. `order` has `count` elements.
template <class T>
HWY_INLINE void sum_positions(const T* dy, int64_t width, const int64_t* order, int64_t begin, int64_t end,
                              int64_t count, int64_t columns, Accumulate<T>* sum) {
  constexpr int kAtOnce = 4;
  const T* rows[kAtOnce];
  const T* later[kAtOnce];
  const auto look_up = [&](int64_t p, int k) {
    rows[k] = dy + order[p] * width;
    later[k] = dy + order[std::min(p + kAtOnce, count - 1)] * width;
  };
  int64_t p = begin;
  for (; p + kAtOnce <= end; p += kAtOnce) {
    for (int k = 0; k < kAtOnce; ++k) look_up(p + k, k);
    add_rows<kAtOnce>(rows, later, p == begin, columns, sum);
  }
  for (; p < end; ++p) {
    look_up(p, 0);
    add_rows<1>(rows, later, p == begin, columns, sum);
  }
}

/// Writes one row's sum to the table gradient, or adds it.
template <class D, class G>
HWY_INLINE void put_row(D d, const hn::TFromD<D>* sum, int64_t columns, bool accumulate, bool streaming, G* target) {
  for_vectors(d, columns, [&](int64_t i, size_t n) HWY_ATTR {
    auto total = hn::Load(d, sum + i);
    if (accumulate) total = hn::Add(total, load_n(d, target + i, n));
    put_n(d, total, target + i, n, streaming);
  });
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
  const Cut cut = cut_table(starts, rows);
  const int64_t blocks = (width + cut.columns - 1) / cut.columns;
  const bool streaming = !args.accumulate && should_stream(dtable, rows * width, width);
  args.dy.device().threads().tasks(static_cast<int64_t>(cut.rows.size() - 1) * blocks, [&](int64_t task) HWY_ATTR {
    const ComputeTag<T> d;
    HWY_ALIGN Accumulate<T> sum[kMostColumns];
    const int64_t first = task % blocks * cut.columns;
    const int64_t columns = std::min(cut.columns, width - first);
    const auto range = static_cast<size_t>(task / blocks);
    bool is_zero = false;
    for (int64_t r = cut.rows[range]; r < cut.rows[range + 1]; ++r) {
      const bool unused = starts[r] == starts[r + 1];
      if (unused && args.accumulate) continue;
      if (!unused) {
        sum_positions(dy + first, width, order, starts[r], starts[r + 1], starts[rows], columns, sum);
      } else if (!is_zero) {
        std::memset(sum, 0, sizeof sum);
      }
      is_zero = unused;
      put_row(d, sum, columns, args.accumulate, streaming, dtable + r * width + first);
    }
    if (streaming) hwy::FlushStream();
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

/// Multi-dimensional index of the element at `flat` in row-major order.
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
