// Memory-bound and, during decoding, launch-bound, so one launch stores both keys and values. Each token has one block
// (several if it has many heads), which finds the token's row and page. A thread moves eight columns of one head, or
// one column if rows are not 16-byte aligned: keys first, then values. For an 8-bit cache, one warp handles the key or
// the value of a head and reads it twice: first to find the largest magnitude, then, from the L1 cache, to round it.
#include <algorithm>

#include "lamina/ops/attention/paged/page_rows.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::Fault;
using lamina::cuda::FaultSlot;
using lamina::cuda::kWarp;

constexpr const char* kPagedStoreName = "paged_store";
constexpr int kPagedStoreThreads = 256;
constexpr int kStoreColumns = 8;
constexpr int kQuantizedColumns = 4;  // columns per lane when quantizing

/// The new keys (or values), and the pages that receive them.
struct PagedPart {
  const void* from;
  void* to;
  int width;           ///< width of a head
  int units;           ///< groups of columns that one thread moves, per head
  int64_t from_token;  ///< strides are in elements
  int64_t from_head;
  float* scales;  ///< scales of an 8-bit cache, else null
};

struct PagedStoreParams {
  PageRows rows;
  PagedPart parts[2];  ///< keys, values
  FaultSlot* faults;
};

/// The token that a block stores: where it comes from and where it goes.
struct StoredEntry {
  int token = static_cast<int>(blockIdx.x);
  int page = -1;
  int position = -1;

  __device__ StoredEntry(const PagedStoreParams& p, int* found) {
    int row = 0;
    position = p.rows.position_of(token, found, row);
    if (row < 0 || row >= p.rows.rows || p.rows.lengths[row] == 0) return;  // an unused row, or padding
    page = p.rows.page_of(row, position);
    if (page < 0 && blockIdx.y == 0 && threadIdx.x == 0) lamina::cuda::report(p.faults, Fault::cache_place, position);
  }
};

template <class From, class To, int kCount>
__global__ void __launch_bounds__(kPagedStoreThreads) paged_store_kernel(const __grid_constant__ PagedStoreParams p) {
  __shared__ int found;
  lamina::cuda::grid_dependency_wait();
  const StoredEntry entry(p, &found);
  if (entry.page < 0) return;
  const int keys = p.rows.n_kv_heads * p.parts[0].units;
  const int all = keys + p.rows.n_kv_heads * p.parts[1].units;
  for (int n = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x); n < all;
       n += static_cast<int>(gridDim.y * blockDim.x)) {
    const PagedPart& part = p.parts[n < keys ? 0 : 1];
    const int at = n < keys ? n : n - keys;
    const int head = at / part.units;
    const int column = (at - head * part.units) * kCount;
    const From* from = static_cast<const From*>(part.from) + entry.token * part.from_token + head * part.from_head;
    const auto held = *reinterpret_cast<const PageColumns<From, kCount>*>(from + column);
    PageColumns<To, kCount> result;
#pragma unroll
    for (int c = 0; c < kCount; ++c) result.values[c] = from_float<To>(to_float(held.values[c]));
    To* to = static_cast<To*>(part.to) + p.rows.entry(entry.page, head, entry.position) * part.width + column;
    *reinterpret_cast<PageColumns<To, kCount>*>(to) = result;
  }
}

template <class From, int kCount>
__global__ void __launch_bounds__(kPagedStoreThreads)
    paged_quantize_kernel(const __grid_constant__ PagedStoreParams p) {
  __shared__ int found;
  lamina::cuda::grid_dependency_wait();
  const StoredEntry entry(p, &found);
  if (entry.page < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(gridDim.y * blockDim.x) / kWarp;
  const int heads = p.rows.n_kv_heads;
  const int rows = heads * (p.parts[1].scales != nullptr ? 2 : 1);
  for (int row = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) / kWarp; row < rows; row += warps) {
    const PagedPart& part = p.parts[row < heads ? 0 : 1];
    const int head = row < heads ? row : row - heads;
    const int64_t to_entry = p.rows.entry(entry.page, head, entry.position);
    const auto* from = reinterpret_cast<const PageColumns<From, kCount>*>(
        static_cast<const From*>(part.from) + entry.token * part.from_token + head * part.from_head);
    auto* to = reinterpret_cast<PageColumns<uint8_t, kCount>*>(static_cast<uint8_t*>(part.to) + to_entry * part.width);
    unsigned most = 0;  // bit patterns without the sign compare like magnitudes; NaN is the largest
    for (int u = lane; u < part.units; u += kWarp) {
      const PageColumns<From, kCount> held = from[u];
#pragma unroll
      for (int c = 0; c < kCount; ++c) most = max(most, __float_as_uint(fabsf(to_float(held.values[c]))));
    }
    const RowScale scale = row_scale(__uint_as_float(__reduce_max_sync(lamina::cuda::kAllLanes, most)));
    if (lane == 0) part.scales[to_entry] = scale.scale;
    for (int u = lane; u < part.units; u += kWarp) {
      const PageColumns<From, kCount> held = from[u];
      PageColumns<uint8_t, kCount> numbers;
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        numbers.values[c] = static_cast<uint8_t>(__float2int_rn(to_float(held.values[c]) * scale.inverse) + 128);
      }
      to[u] = numbers;
    }
  }
}

PagedPart paged_part(const Tensor& pages, const Tensor& fresh, const Tensor& scales) {
  if (!fresh.defined()) return {};
  const int width = narrow(fresh.dim(2));
  return {.from = fresh.raw(),
          .to = pages.raw(),
          .width = width,
          .units = width,
          .from_token = fresh.dim(0) == 1 ? 0 : fresh.strides()[0],
          .from_head = fresh.dim(1) == 1 ? 0 : fresh.strides()[1],
          .scales = scales.defined() ? scales.data<float>() : nullptr};
}

template <class From, class To, int kCount>
bool in_columns(const PagedPart& part) {
  return part.from == nullptr ||
         (fits_columns<From, kCount>(part.from, part.width, {part.from_token, part.from_head}) &&
          fits_columns<To, kCount>(part.to, part.width, {}));
}

/// Launches one or more blocks per token. One thread handles each of the token's `items`.
void launch(void (*kernel)(PagedStoreParams), const PagedStoreParams& p, int items, const PagedStore& args) {
  const int threads = std::min((items + kWarp - 1) / kWarp * kWarp, kPagedStoreThreads);
  const dim3 grid(static_cast<unsigned>(args.k.dim(0)),
                  static_cast<unsigned>(std::min((items + threads - 1) / threads, 64)));
  lamina::cuda::launch_dependent(kernel, grid, dim3(static_cast<unsigned>(threads)), 0, args.k.device(), p);
  lamina::cuda::check_launch(kPagedStoreName);
}

template <class From, class To>
void store(const PagedStore& args) {
  constexpr bool kRounds = std::is_same_v<To, uint8_t>;
  constexpr int kCount = kRounds ? kQuantizedColumns : kStoreColumns;
  PagedStoreParams p{
      page_rows(args.cache, args.rows),
      {paged_part(args.cache.k, args.k, args.cache.scales.k), paged_part(args.cache.v, args.v, args.cache.scales.v)},
      lamina::cuda::fault_slot(args.k.device())};
  const bool packs = in_columns<From, To, kCount>(p.parts[0]) && in_columns<From, To, kCount>(p.parts[1]);
  if (packs) {
    for (PagedPart& part : p.parts) part.units /= kCount;
  }
  const int heads = p.rows.n_kv_heads;
  if constexpr (kRounds) {
    launch(packs ? paged_quantize_kernel<From, kCount> : paged_quantize_kernel<From, 1>, p,
           heads * (args.v.defined() ? 2 : 1) * kWarp, args);
  } else {
    launch(packs ? paged_store_kernel<From, To, kCount> : paged_store_kernel<From, To, 1>, p,
           heads * (p.parts[0].units + p.parts[1].units), args);
  }
}

}  // namespace

void paged_store(const PagedStore& args) {
  if (args.rows.rows() == 0 || (args.k.numel() == 0 && (!args.v.defined() || args.v.numel() == 0))) return;
  lamina::cuda::visit_floating(kPagedStoreName, args.k.dtype(), [&](auto from) {
    using From = DeviceType<typename decltype(from)::type>;
    if (args.cache.k.dtype() == DType::u8) return store<From, uint8_t>(args);
    lamina::cuda::visit_floating(kPagedStoreName, args.cache.k.dtype(),
                                 [&](auto to) { store<From, DeviceType<typename decltype(to)::type>>(args); });
  });
}

}  // namespace lamina::ops::cuda
