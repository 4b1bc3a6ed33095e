// Blocked GEMM after Goto & van de Geijn 2008. op(B) is packed once into panels that all threads share. Each task packs
// a block of rows of op(A) and multiplies it with one panel after the other: a panel of B stays in the L1 cache, the
// blocks of A and C in L2. Every element of C is summed by one task, over k in order, so results depend only on the
// sizes and are bit-identical for any number of threads.
//
// Two cases differ. If C is small and k is long, tasks take parts of k, and the partial sums are added in order
// (split-k). If op(A) has up to 16 rows and the columns of op(B) are K-major (x·Wᵀ), dot products are used, which are
// limited by memory bandwidth.
//
// Panels hold numbers of the computing type or, for bf16 products, pairs of bf16. With pairs, the microkernel
// multiplies two steps of k at once, or 32 with tile instructions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/linear/gemm/gemm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/gemm/bf16_dot.h"
#include "lamina/ops/linear/gemm/gemm_block-inl.h"
#include "lamina/ops/linear/gemm/gemm_plan-inl.h"
#include "lamina/ops/linear/gemm/gemm_scratch.h"
#include "lamina/ops/linear/gemm/gemm_thin-inl.h"
#include "lamina/ops/linear/gemm/gemm_thin_tiled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

/// Runs body(task, last) for all tasks. `last` is a number that a thread keeps between its tasks, initially −1. Each
/// thread starts with a contiguous share of the tasks, the same share in every product, and then steals from others. So
/// rows written by one product are mostly read by the same core in the next one, which helps if cores do not share
/// caches.
template <class F>
void each_task(const Threads& threads, bool serial, int64_t tasks, const F& body) {
  const int64_t shares = serial ? 1 : std::min<int64_t>(threads.count(), tasks);
  if (shares <= 1) {
    int64_t last = -1;
    for (int64_t task = 0; task < tasks; ++task) body(task, last);
    return;
  }
  std::vector<std::atomic<int64_t>> taken(static_cast<size_t>(shares));
  threads.tasks(shares, [&](int64_t own) {
    int64_t last = -1;
    for (int64_t i = 0; i < shares; ++i) {
      const int64_t share = (own + i) % shares;
      const int64_t begin = share * tasks / shares;
      const int64_t end = (share + 1) * tasks / shares;
      auto& count = taken[static_cast<size_t>(share)];
      for (int64_t task = begin + count++; task < end; task = begin + count++) body(task, last);
    }
  });
}

/// The packing of one operand of a chunk, divided into tasks. A task is a range of rows or columns (extent, step) and a
/// part of k (depth, depth_step).
struct PackTasks {
  int64_t extent, step;
  int64_t depth, depth_step;
  int64_t count() const { return ceil_div(extent, step) * ceil_div(depth, depth_step); }
  int64_t first(int64_t task) const { return task / ceil_div(depth, depth_step) * step; }
  Depths part(int64_t task) const {
    const int64_t begin = task % ceil_div(depth, depth_step) * depth_step;
    return {begin, std::min(depth, begin + depth_step)};
  }
};
/// Limits for the packing tasks: `fewest` to `most` panels of `panel` rows or columns per task.
struct PackPanels {
  int64_t panel, fewest, most;
};
/// Starts with tasks that read long runs of memory and splits them until each thread has two. Packing only moves
/// numbers, so the split may depend on the number of threads.
inline PackTasks pack_tasks(bool shared, bool across, int64_t extent, PackPanels of, int64_t depth, int64_t threads) {
  if (!shared) return {0, 1, 0, 1};
  PackTasks tasks{extent, of.most * of.panel, depth, across ? kPackTaskDepth : depth};
  const auto suffice = [&] { return tasks.count() >= 2 * threads; };
  while (!suffice() && tasks.step > of.fewest * of.panel) tasks.step /= 2;
  if (!suffice()) tasks.depth_step = std::min(tasks.depth_step, kPackTaskDepth);
  while (!suffice() && tasks.depth_step > kMinPackDepth) {
    tasks.depth_step = std::max(kMinPackDepth, round_up(tasks.depth_step / 2, kTileSide));  // whole tiles
  }
  return tasks;
}

/// Packs the panels of a chunk that all tasks use.
template <class E>
void pack_shared(const Threads& threads, const Plan<E>& plan, const Chunk<E>& chunk, bool serial) {
  const FusedGemm<SumOf<E>>& p = *plan.product;
  const PackPanels column_panels{kTileColumns<E>, p.b.transpose ? 1 : 4, p.b.transpose ? 8 : 32};
  const PackPanels row_panels{kBlockRows, 1, p.a.transpose ? 4 : 1};
  const PackTasks columns = pack_tasks(chunk.packed_columns != nullptr, !p.b.transpose, chunk.column_end - chunk.column,
                                       column_panels, chunk.depth, threads.count());
  const PackTasks rows =
      pack_tasks(chunk.packed_rows != nullptr, p.a.transpose, p.m, row_panels, chunk.depth, threads.count());
  each_task(threads, serial, columns.count() + rows.count(), [&](int64_t task, int64_t& /*last*/) HWY_ATTR {
    if (task < columns.count()) {
      const int64_t begin = cut_columns(chunk, chunk.column + columns.first(task));
      pack_columns(plan, chunk, begin, cut_columns(chunk, begin + columns.step), columns.part(task),
                   chunk.packed_columns + (begin - chunk.column) * chunk.depth);
    } else {
      const int64_t row = rows.first(task - columns.count());
      pack_rows(plan, chunk, row, std::min(p.m, row + rows.step), rows.part(task - columns.count()),
                chunk.packed_rows + row * chunk.depth);
    }
  });
}

template <class E>
void run_chunk(const Threads& threads, const Plan<E>& plan, const Chunk<E>& chunk) {
  const bool serial = plan.product->m * plan.product->n * plan.product->k < kSerialWork;
  pack_shared(threads, plan, chunk, serial);
  const int64_t parts = ceil_div(chunk.column_end - chunk.column, plan.task_columns);
  const auto run = [&](int64_t task, int64_t& last) HWY_ATTR {
    std::optional<TileScope> tiles;
    if constexpr (kIsTiled<E>) tiles.emplace(plan.unit);
    const int64_t begin = cut_columns(chunk, chunk.column + task % parts * plan.task_columns);
    const int64_t end = cut_columns(chunk, begin + plan.task_columns);
    E* columns = nullptr;
    if (chunk.packed_columns != nullptr) {
      columns = chunk.packed_columns + (begin - chunk.column) * chunk.depth;
    } else {
      columns = gemm_scratch<E>(GemmScratch::columns, (plan.task_columns + kTileColumns<E>)*chunk.depth);
      pack_columns(plan, chunk, begin, end, {0, chunk.depth}, columns);
    }
    const int64_t first = task / parts * plan.task_rows;
    for (int64_t row = first; row < std::min(plan.product->m, first + plan.task_rows); row += kBlockRows) {
      run_block(plan, chunk, row, begin, end, columns, last == row);
      last = row;
    }
  };
  each_task(threads, serial, ceil_div(plan.product->m, plan.task_rows) * parts, run);
}

template <class E>
void run_blocked(const Threads& threads, const FusedGemm<SumOf<E>>& p, int64_t chunk_depth) {
  const Plan<E> plan = make_plan<E>(p, chunk_depth, threads.count());
  Chunk<E> chunk{};
  // If C has a single block of rows, each packed column is used once, so tasks pack columns for themselves. Exception:
  // columns stored across k are packed together, because they are read in whole rows. Rows stored along k are also
  // packed by their tasks: a thread runs the parts of a block one after the other and packs its rows once.
  if (plan.product->m > kBlockRows || !plan.product->b.transpose) {
    chunk.packed_columns = gemm_scratch<E>(GemmScratch::columns, plan.chunk_columns * plan.chunk_depth);
  }
  if (plan.task_columns < plan.chunk_columns && plan.product->a.transpose) {
    chunk.packed_rows =
        gemm_scratch<E>(GemmScratch::shared_rows, round_up(plan.product->m, kRowStep<E>) * plan.chunk_depth);
  }
  for (int64_t j = 0; j < plan.product->n; j += plan.chunk_columns) {
    for (int64_t k0 = 0; k0 < plan.k; k0 += plan.chunk_depth) {
      chunk.column = j;
      chunk.column_end = std::min(plan.product->n, j + plan.chunk_columns);
      chunk.k0 = k0;
      chunk.depth = std::min(plan.chunk_depth, plan.k - k0);
      run_chunk(threads, plan, chunk);
    }
  }
}

/// True if C is so small that partial sums for every part of k cost little compared with reading A and B. Example: the
/// weight gradient of a narrow layer over many positions.
template <class E>
bool prefers_split_k(const FusedGemm<SumOf<E>>& p) {
  return !p.b.transpose && p.m <= kBlockRows && p.m * p.n <= kDeepSums &&
         elements_in<E>(p.k) >= kSplitKParts * kDepth<E>;
}

/// The product op(A)[:, begin:end] · op(B)[begin:end, :], written to the contiguous matrix c.
template <class T>
FusedGemm<T> part_of_k(const FusedGemm<T>& p, int64_t begin, int64_t end, T* c) {
  const auto from = [&](const GemmOperand& operand, bool along) {
    const int64_t elements = along ? begin : begin * operand.ld;
    GemmOperand part = operand;
    part.data = static_cast<const char*>(operand.data) + elements * static_cast<int64_t>(size_of(operand.dtype));
    return part;
  };
  FusedGemm<T> part;
  part.m = p.m;
  part.n = p.n;
  part.k = end - begin;
  part.alpha = p.alpha;
  part.kernel = p.kernel;
  part.a = from(p.a, !p.a.transpose);
  part.b = from(p.b, p.b.transpose);
  part.c = c;
  part.ldc = p.n;
  return part;
}

/// Split-k: each task multiplies one part of k, in chunks whose panels stay in the L2 cache. Tasks synchronize only
/// before the final sum.
template <class E>
void run_split_k(const Threads& threads, const FusedGemm<SumOf<E>>& p) {
  using T = SumOf<E>;
  constexpr int64_t kUnit = (kIsPair<E> ? 2 : 1) * kDepthStep<E>;  // parts consist of whole elements
  const int64_t size = p.m * p.n;
  T* sums = gemm_scratch<T>(GemmScratch::parts, kSplitKParts * size);
  threads.tasks(kSplitKParts, [&](int64_t part) {
    const int64_t begin = part * p.k / kSplitKParts / kUnit * kUnit;
    const int64_t end = part + 1 == kSplitKParts ? p.k : (part + 1) * p.k / kSplitKParts / kUnit * kUnit;
    run_blocked<E>(threads, part_of_k(p, begin, end, sums + part * size), kDepth<E>);
  });
  threads.ranges(p.m, rows_per_range(p.n, 4096), [&](int64_t begin, int64_t end) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const auto keep = hn::Set(d, p.beta);
    T* c = p.c != nullptr ? p.c + begin * p.ldc : sums + begin * p.n;
    const int64_t ldc = p.c != nullptr ? p.ldc : p.n;
    for (int64_t i = 0; i < end - begin; ++i) {
      const T* first = sums + (begin + i) * p.n;
      for_vectors(d, p.n, [&](int64_t j, size_t count) HWY_ATTR {
        auto value = load_n(d, first + j, count);
        for (int64_t part = 1; part < kSplitKParts; ++part) {
          value = hn::Add(value, load_n(d, first + part * size + j, count));
        }
        T* at = c + i * ldc + j;
        if (p.beta != T{0}) value = hn::MulAdd(keep, load_n(d, at, count), value);
        store_n(d, value, at, count);
      });
    }
    if (p.finish) p.finish(c, ldc, {begin, end - begin, 0, p.n});
  });
}

/// The product for k = 0: C = beta · C.
template <class T>
void run_scale(const Threads& threads, const FusedGemm<T>& p) {
  threads.ranges(p.m, kBlockRows, [&](int64_t begin, int64_t end) {
    const int64_t ld = p.c != nullptr ? p.ldc : p.n;
    T* c = p.c != nullptr ? p.c + begin * ld : gemm_scratch<T>(GemmScratch::block, (end - begin) * ld);
    for (int64_t i = 0; i < end - begin; ++i) {
      for (int64_t j = 0; j < p.n; ++j) c[i * ld + j] = p.beta == T{0} ? T{0} : p.beta * c[i * ld + j];
    }
    if (p.finish) p.finish(c, ld, {begin, end - begin, 0, p.n});
  });
}

template <class E>
void run_product(const Threads& threads, const FusedGemm<SumOf<E>>& p) {
  if (p.m <= 0 || p.n <= 0) return;
  if (p.k <= 0) {
    run_scale(threads, p);
    return;
  }
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kIsTiled<E>) {
    if (is_thin_tiled(p)) return run_thin_tiled(threads, p);
  }
#endif
  if (p.m <= (p.b.transpose ? kThinRowsAlong : kThinRows)) {
    if constexpr (kIsPair<E>) {
      if (is_thin_bf16(p) && has_bf16_dot()) return run_thin_bf16(threads, p);
    }
    run_thin(threads, p);
  } else if (prefers_split_k<E>(p)) {
    run_split_k<E>(threads, p);
  } else {
    run_blocked<E>(threads, p, kChunkDepth);
  }
}

/// Runs the product and stores finished blocks in S, a type narrower than the computing type. If k takes several
/// chunks, only a stripe of rows of C is held in the computing type at a time.
template <class E, class S>
void run_narrow(const Threads& threads, FusedGemm<float> p, S* out, int64_t ld_out) {
  if (p.n <= 0) return;
  const int64_t rows = p.m;
  const bool one_chunk = elements_in<E>(p.k) <= kChunkDepth;
  const int64_t step = one_chunk ? std::max<int64_t>(rows, 1) : kStripeRows;
  const auto* a = static_cast<const char*>(p.a.data);
  const int64_t row_bytes = (p.a.transpose ? 1 : p.a.ld) * static_cast<int64_t>(size_of(p.a.dtype));
  for (int64_t first = 0; first < rows; first += step) {
    const auto narrow = [&](float* block, int64_t ld, const GemmBlock& at) HWY_ATTR {
      const hn::ScalableTag<float> d;
      for (int64_t i = 0; i < at.rows; ++i) {
        S* to = out + (first + at.row + i) * ld_out + at.column;
        for_vectors(d, at.columns, [&](int64_t j, size_t count) HWY_ATTR {
          store_n(d, load_n(d, block + i * ld + j, count), to + j, count);
        });
      }
    };
    p.m = std::min(step, rows - first);
    p.a.data = a == nullptr ? nullptr : a + first * row_bytes;
    p.c = one_chunk ? nullptr : gemm_scratch<float>(GemmScratch::stripe, p.m * p.n);
    p.ldc = p.n;
    p.finish = narrow;
    if (step < rows) {  // the stripes are bit-identical to the whole product
      run_blocked<E>(threads, p, kChunkDepth);
    } else {
      run_product<E>(threads, p);
    }
  }
}

/// Calls body(TypeTag<E>) with the element type of the panels in which the product is computed.
template <class F>
void with_elements([[maybe_unused]] const FusedGemm<float>& p, const F& body) {
#if HWY_TARGET <= HWY_AVX3
  const auto rounds = [](DType type) { return type == DType::bf16 || type == DType::f32; };
  if (rounds(p.a.dtype) && rounds(p.b.dtype)) {
    const bool emulated = p.kernel == ProductKernel::bf16_tile_emulated;
    if (emulated || (p.kernel == ProductKernel::bf16_tile && has_bf16_tiles())) return body(TypeTag<TiledPair>{});
    if (p.kernel == ProductKernel::bf16_dot && has_bf16_dot()) return body(TypeTag<Bf16Pair>{});
  }
#endif
  body(TypeTag<float>{});
}

void gemm_narrow(const Threads& threads, const FusedGemm<float>& p, void* out, DType dtype, int64_t ld) {
  with_elements(p, [&](auto tag) {
    using E = typename decltype(tag)::type;
    if (dtype == DType::bf16) {
      run_narrow<E>(threads, p, static_cast<bf16*>(out), ld);
    } else {
      run_narrow<E>(threads, p, static_cast<f16*>(out), ld);
    }
  });
}

void gemm_f32(const Threads& threads, const FusedGemm<float>& p) {
  with_elements(p, [&](auto tag) { run_product<typename decltype(tag)::type>(threads, p); });
}
void gemm_f64(const Threads& threads, const FusedGemm<double>& p) { run_product<double>(threads, p); }

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
namespace {

template <class T>
FusedGemm<T> fused(const Gemm<T>& p) {
  FusedGemm<T> product;
  product.m = p.m;
  product.n = p.n;
  product.k = p.k;
  product.alpha = p.alpha;
  product.a = {p.a, dtype_of<T>(), p.lda, p.transpose_a};
  product.b = {p.b, dtype_of<T>(), p.ldb, p.transpose_b};
  product.beta = p.beta;
  product.c = p.c;
  product.ldc = p.ldc;
  return product;
}

}  // namespace

HWY_EXPORT(gemm_narrow);
HWY_EXPORT(gemm_f32);
HWY_EXPORT(gemm_f64);

void gemm(const Threads& threads, const FusedGemm<float>& p) { HWY_DYNAMIC_DISPATCH(gemm_f32)(threads, p); }
void gemm(const Threads& threads, const FusedGemm<double>& p) { HWY_DYNAMIC_DISPATCH(gemm_f64)(threads, p); }
void gemm(const Threads& threads, const Gemm<float>& p) { gemm(threads, fused(p)); }
void gemm(const Threads& threads, const Gemm<double>& p) { gemm(threads, fused(p)); }

void gemm_to(const Threads& threads, const FusedGemm<float>& product, void* out, DType dtype, int64_t ld) {
  if (dtype != DType::f32) {
    HWY_DYNAMIC_DISPATCH(gemm_narrow)(threads, product, out, dtype, ld);
    return;
  }
  FusedGemm<float> p = product;
  p.c = static_cast<float*>(out);
  p.ldc = ld;
  gemm(threads, p);
}
void gemm_to(const Threads& threads, const FusedGemm<double>& product, void* out, DType /*dtype*/, int64_t ld) {
  FusedGemm<double> p = product;
  p.c = static_cast<double*>(out);
  p.ldc = ld;
  gemm(threads, p);
}

}  // namespace lamina::ops
#endif
