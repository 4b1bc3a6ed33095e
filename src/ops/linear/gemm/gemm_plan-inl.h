// Divides a product into chunks, blocks and tasks, and packs its operands accordingly.
#if defined(LAMINA_OPS_LINEAR_GEMM_PLAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LINEAR_GEMM_PLAN_INL_H_
#undef LAMINA_OPS_LINEAR_GEMM_PLAN_INL_H_
#else
#define LAMINA_OPS_LINEAR_GEMM_PLAN_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/gemm/gemm_pairs-inl.h"
#include "lamina/ops/linear/gemm/gemm_panel-inl.h"
#include "lamina/ops/linear/gemm/gemm_tiled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

inline constexpr int64_t kChunkDepth = 1152;  // depth of k that is packed at once
// Depth per packing task if the operand is stored across k, or if there are few tasks.
inline constexpr int64_t kPackTaskDepth = 192;
inline constexpr int64_t kMinPackDepth = 48;     // a multiple of kPackDepth
inline constexpr int64_t kChunkBytes = 6 << 20;  // bytes of packed B
inline constexpr int64_t kBlockRows = kGemmBlockRows;
inline constexpr int64_t kBlockColumns = 480;  // columns of C that stay in the L2 cache while k advances
inline constexpr int64_t kStripeRows = 1536;   // rows of C that are held in the computing type if C is narrower
inline constexpr int64_t kTaskBlocks = 8;      // maximum number of row blocks per task, processed in order
inline constexpr int64_t kMinTasks = 16;       // enough tasks to balance few threads
// A thread on a busy core then delays the others by a quarter of its work.
inline constexpr int64_t kTasksPerThread = 4;
inline constexpr int64_t kMinTaskColumns = 96;   // with fewer columns, A would be read too often
inline constexpr int64_t kDirectColumns = 160;   // up to this many columns, packing A costs more than it saves
inline constexpr int64_t kSplitKParts = 16;      // number of parts of a long k, one task each
inline constexpr int64_t kDeepSums = 1 << 16;    // maximum number of elements of C for split-k
inline constexpr int64_t kSerialWork = 1 << 15;  // multiplications; with fewer, waking the threads costs more

/// Elements of k in one pass over a block of C. For tiles, one panel of B and one of A then fit into the L1 cache.
template <class E>
inline constexpr int64_t kDepth = kIsTiled<E> ? 192 : 384;
/// Elements of k that are packed in one step.
template <class E>
inline constexpr int64_t kPackDepth = kIsTiled<E> ? kTileSide : 8;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// How one product is divided into tiles: rows from A, columns from B. E is an element of packed panels, a number or a
/// pair of bf16 adjacent along k. Depths and positions along k count elements.
template <class E>
struct Plan {
  const FusedGemm<SumOf<E>>* product;
  int64_t k;
  bool direct;  // A is read in place, not packed
  int64_t chunk_depth, chunk_columns, task_columns;
  int64_t task_rows;
  TileUnit unit = TileUnit::amx;
};

/// True if rows this far apart map to the same sets of the L1 cache when about a dozen are read in parallel.
inline bool rows_alias(int64_t row_bytes) { return row_bytes % 2048 == 0; }

/// True if the rows of A, as stored, hold whole elements in the order in which a tile reads them.
template <class E>
bool holds_elements(const GemmOperand& a, int64_t k) {
  if constexpr (kIsPair<E>) {
    return !a.transpose && a.dtype == DType::bf16 && a.ld % 2 == 0 && k % (2 * kDepthStep<E>) == 0;
  } else {
    return !a.transpose && a.dtype == dtype_of<E>();
  }
}

/// Number of elements in `k` numbers, padded to whole steps.
template <class E>
int64_t elements_in(int64_t k) {
  return round_up(kIsPair<E> ? ceil_div(k, 2) : k, kDepthStep<E>);
}

/// Number of parts into which the columns of C are divided for the tasks: kTasksPerThread rounds of tasks with a nearly
/// full last round keep all threads busy. An element of C is always summed by one task, so results do not depend on the
/// number of threads.
inline int64_t column_parts(int64_t row_blocks, int64_t columns, int64_t threads) {
  const int64_t fewest = std::max<int64_t>(1, kMinTasks / row_blocks);
  const bool few = columns / kMinTaskColumns * row_blocks < 2 * threads;
  const int64_t most = std::max(fewest, columns / (few ? kMinTaskColumns / 2 : kMinTaskColumns));
  for (int64_t parts = fewest; parts <= most; ++parts) {
    const int64_t tasks = parts * row_blocks;
    const int64_t slots = round_up(tasks, threads);
    if (tasks >= kTasksPerThread * threads && 10 * tasks >= 9 * slots) return parts;
  }
  return most;
}

template <class E>
Plan<E> make_plan(const FusedGemm<SumOf<E>>& p, int64_t chunk_depth, int64_t threads) {
  Plan<E> plan{&p, elements_in<E>(p.k), false, 0, 0, 0, 0};
  const int64_t row_bytes = p.a.ld * static_cast<int64_t>(size_of(p.a.dtype));
  if (p.kernel == ProductKernel::bf16_tile_emulated) plan.unit = TileUnit::emulated;
  plan.direct = holds_elements<E>(p.a, p.k) && (kIsTiled<E> || p.n <= kDirectColumns) && !rows_alias(row_bytes);
  plan.chunk_depth = p.c == nullptr ? plan.k : std::min(plan.k, chunk_depth);
  const int64_t bytes_per_column = plan.chunk_depth * static_cast<int64_t>(sizeof(E));
  const int64_t fitting = kChunkBytes / bytes_per_column / kTileColumns<E> * kTileColumns<E>;
  plan.chunk_columns = std::min(round_up(p.n, kTileColumns<E>), std::max(fitting, kTileColumns<E>));
  const int64_t row_blocks = ceil_div(p.m, kBlockRows);
  plan.task_rows = std::clamp<int64_t>(row_blocks / (2 * kMinTasks), 1, kTaskBlocks) * kBlockRows;
  const int64_t parts = column_parts(ceil_div(p.m, plan.task_rows), plan.chunk_columns, threads);
  plan.task_columns = round_up(ceil_div(plan.chunk_columns, parts), kTileColumns<E>);
  return plan;
}

/// Packs `count` rows of op(A), or columns of op(B), from `first` on, over k in [begin, begin + depth), as one panel.
/// `k` counts numbers; if elements are pairs, it is padded.
template <class E, bool kColumns>
void pack(const GemmOperand& from, int64_t k, int64_t first, int64_t count, int64_t begin, int64_t depth, E* to,
          int64_t width) {
  const auto with = [&](auto tag) HWY_ATTR {
    using S = typename decltype(tag)::type;
    const S* data = static_cast<const S*>(from.data);
    if constexpr (kIsTiled<E> && !kColumns) {
      const int64_t numbers = std::min(2 * depth, k - 2 * begin);
      if (from.transpose) {
        pack_tiled_mn_major(data + 2 * begin * from.ld + first, from.ld, count, numbers, depth, to, width);
      } else {
        pack_tiled_k_major(data + first * from.ld + 2 * begin, from.ld, count, numbers, depth, to, width);
      }
    } else if constexpr (kIsPair<E>) {
      const int64_t numbers = std::min(2 * depth, k - 2 * begin);
      if (from.transpose == kColumns) {
        pack_pairs_k_major(data + first * from.ld + 2 * begin, from.ld, count, numbers, to, width);
      } else if constexpr (kColumns) {
        pack_pairs_mn_major(hn::ScalableTag<float>(), data + 2 * begin * from.ld + first, from.ld, count, numbers, to,
                            width);
      } else {
        pack_pairs_mn_major(hn::CappedTag<float, kTileRows>(), data + 2 * begin * from.ld + first, from.ld, count,
                            numbers, to, width);
      }
      const int64_t given = (numbers + 1) / 2 * width;
      std::fill(to + given, to + depth * width, E{});
    } else if (from.transpose == kColumns) {
      pack_k_major(data + first * from.ld + begin, from.ld, count, depth, to, width);
    } else if constexpr (kColumns) {
      pack_mn_major(hn::ScalableTag<E>(), data + begin * from.ld + first, from.ld, count, depth, to, width);
    } else {
      pack_mn_major(hn::CappedTag<E, kTileRows>(), data + begin * from.ld + first, from.ld, count, depth, to, width);
    }
  };
  if constexpr (std::is_same_v<E, double>) {
    with(TypeTag<double>{});
  } else if constexpr (kIsPair<E>) {
    from.dtype == DType::bf16 ? with(TypeTag<bf16>{}) : with(TypeTag<float>{});
  } else {
    switch (from.dtype) {
      case DType::bf16: with(TypeTag<bf16>{}); break;
      case DType::f16: with(TypeTag<f16>{}); break;
      default: with(TypeTag<float>{});
    }
  }
}

/// Number of columns in the panel of B that starts at `column`, in whole tiles. A last panel of only one vector is
/// avoided by making the last two panels equally wide.
template <class E>
int64_t panel_columns(int64_t column, int64_t end) {
  const int64_t left = end - column;
  if (left > kTileColumns<E> && left <= kTileColumns<E> + kLanes<E>) return (kVectorsOf<E> + 2) / 2 * kLanes<E>;
  return std::min(kTileColumns<E>, left);
}
template <class E>
int64_t panel_rows(int64_t row, int64_t end) {
  return round_up(std::min(kRowsOf<E>, end - row), kRowStep<E>);
}

/// One chunk of k and of columns: its position and, if tasks share them, its packed columns and rows.
template <class E>
struct Chunk {
  int64_t column, column_end, k0, depth;
  E* packed_columns;
  E* packed_rows;
};

/// A boundary between tasks at `column`, moved to the end of the chunk if only a single vector would remain.
template <class E>
int64_t cut_columns(const Chunk<E>& chunk, int64_t column) {
  const bool too_narrow = column > chunk.column && chunk.column_end - column <= kLanes<E>;
  return too_narrow ? chunk.column_end : std::min(column, chunk.column_end);
}

/// A part of k within a chunk.
struct Depths {
  int64_t begin, end;
};

/// Packs columns [begin, end) of a chunk into panels. If B is stored across k, packs a few rows at a time, so that
/// whole rows are read sequentially.
template <class E>
void pack_columns(const Plan<E>& plan, const Chunk<E>& chunk, int64_t begin, int64_t end, Depths part, E* to) {
  const int64_t step = plan.product->b.transpose ? chunk.depth : kPackDepth<E>;
  for (int64_t l = part.begin; l < part.end; l += step) {
    const int64_t depth = std::min(step, part.end - l);
    for (int64_t j = begin; j < end;) {
      const int64_t count = panel_columns<E>(j, chunk.column_end);
      const int64_t width = round_up(count, kLanes<E>);
      pack<E, true>(plan.product->b, plan.product->k, j, count, chunk.k0 + l, depth,
                    to + (j - begin) * chunk.depth + l * width, width);
      j += count;
    }
  }
}

template <class E>
void pack_rows(const Plan<E>& plan, const Chunk<E>& chunk, int64_t begin, int64_t end, Depths part, E* to) {
  const int64_t step = plan.product->a.transpose ? kPackDepth<E> : chunk.depth;
  for (int64_t l = part.begin; l < part.end; l += step) {
    const int64_t depth = std::min(step, part.end - l);
    for (int64_t i = begin; i < end; i += kRowsOf<E>) {
      const int64_t count = std::min(kRowsOf<E>, end - i);
      if (plan.direct && count == kRowsOf<E>) continue;
      const int64_t width = panel_rows<E>(i, end);
      pack<E, false>(plan.product->a, plan.product->k, i, count, chunk.k0 + l, depth,
                     to + (i - begin) * chunk.depth + l * width, width);
    }
  }
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
