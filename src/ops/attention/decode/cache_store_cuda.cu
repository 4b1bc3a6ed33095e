// Memory-bound and, during decoding, launch-bound, so one launch stores both keys and values. Each token has one block
// (several if it has many heads). A thread moves eight columns of one head, or one column if rows are not 16-byte
// aligned: keys first, then values. For an 8-bit cache, one warp handles the key or the value of a head and reads it
// twice: first to find the largest magnitude, then, from the L1 cache, to round it. Every block reads its row's
// position from device memory and writes nothing if the tokens do not fit.
#include <algorithm>
#include <initializer_list>

#include "lamina/ops/attention/cache_store_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::Fault;
using lamina::cuda::FaultSlot;
using lamina::cuda::kWarp;

constexpr const char* kStoreName = "cache_store";
constexpr int kStoreThreads = 256;
constexpr int kPackColumns = 8;
constexpr int kByteColumns = 4;  // columns per lane when quantizing

/// A cache and its new entries. Strides are in elements.
struct StorePart {
  const void* from;
  void* to;
  int units;  ///< groups of columns that one thread moves, per head
  int64_t from_row, from_token, from_head;
  int64_t to_row, to_head, to_token;
  float* scales = nullptr;  ///< scales of an 8-bit cache, else null
  int64_t scale_row = 0;
  int64_t scale_head = 0;
  int64_t scale_token = 0;
};

struct StoreParams {
  StorePart parts[2];  ///< keys, values
  int heads;
  int seq;
  int64_t capacity;
  const int64_t* places;
  FaultSlot* faults;
};

/// kCount elements, moved with accesses of at most 16 bytes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount > 16 ? 16 : sizeof(T) * kCount) Columns {
  T values[kCount];
};

/// The token that a block stores: where it comes from and where it goes.
struct StoredToken {
  int b;
  int s;
  int64_t place;
  bool fits;  ///< true if all tokens of the row fit; otherwise one thread reports it

  __device__ explicit StoredToken(const StoreParams& p)
      : b(static_cast<int>(blockIdx.x) / p.seq), s(static_cast<int>(blockIdx.x) % p.seq) {
    const int64_t first = p.places[b];
    fits = first >= 0 && first <= p.capacity - p.seq;
    place = first + s;
    if (!fits && s == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
      lamina::cuda::report(p.faults, Fault::cache_place, first);
    }
  }
  __device__ int64_t from(const StorePart& part, int head) const {
    return b * part.from_row + s * part.from_token + head * part.from_head;
  }
  __device__ int64_t to(const StorePart& part, int head) const {
    return b * part.to_row + head * part.to_head + place * part.to_token;
  }
};

template <class From, class To, int kCount>
__global__ void __launch_bounds__(kStoreThreads) store_kernel(const __grid_constant__ StoreParams p) {
  lamina::cuda::grid_dependency_wait();
  const StoredToken token(p);
  if (!token.fits) return;
  const int keys = p.heads * p.parts[0].units;
  const int all = keys + p.heads * p.parts[1].units;
  for (int n = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x); n < all;
       n += static_cast<int>(gridDim.y * blockDim.x)) {
    const StorePart& part = p.parts[n < keys ? 0 : 1];
    const int at = n < keys ? n : n - keys;
    const int head = at / part.units;
    const int column = (at - head * part.units) * kCount;
    const From* from = static_cast<const From*>(part.from) + token.from(part, head) + column;
    const auto held = *reinterpret_cast<const Columns<From, kCount>*>(from);
    Columns<To, kCount> result;
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      result.values[c] = lamina::cuda::from_float<To>(lamina::cuda::to_float(held.values[c]));
    }
    *reinterpret_cast<Columns<To, kCount>*>(static_cast<To*>(part.to) + token.to(part, head) + column) = result;
  }
}

template <class From, int kCount>
__global__ void __launch_bounds__(kStoreThreads) quantize_kernel(const __grid_constant__ StoreParams p) {
  lamina::cuda::grid_dependency_wait();
  const StoredToken token(p);
  if (!token.fits) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(gridDim.y * blockDim.x) / kWarp;
  const int rows = p.heads * (p.parts[1].scales != nullptr ? 2 : 1);
  for (int row = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) / kWarp; row < rows; row += warps) {
    const StorePart& part = p.parts[row < p.heads ? 0 : 1];
    const int head = row < p.heads ? row : row - p.heads;
    const auto* from =
        reinterpret_cast<const Columns<From, kCount>*>(static_cast<const From*>(part.from) + token.from(part, head));
    auto* to = reinterpret_cast<Columns<uint8_t, kCount>*>(static_cast<uint8_t*>(part.to) + token.to(part, head));
    unsigned most = 0;  // bit patterns without the sign compare like magnitudes; NaN is the largest
    for (int u = lane; u < part.units; u += kWarp) {
      const Columns<From, kCount> held = from[u];
#pragma unroll
      for (int c = 0; c < kCount; ++c) most = max(most, __float_as_uint(fabsf(lamina::cuda::to_float(held.values[c]))));
    }
    const RowScale scale = row_scale(__uint_as_float(__reduce_max_sync(lamina::cuda::kAllLanes, most)));
    if (lane == 0) {
      part.scales[token.b * part.scale_row + head * part.scale_head + token.place * part.scale_token] = scale.scale;
    }
    for (int u = lane; u < part.units; u += kWarp) {
      const Columns<From, kCount> held = from[u];
      Columns<uint8_t, kCount> numbers;
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        numbers.values[c] =
            static_cast<uint8_t>(__float2int_rn(lamina::cuda::to_float(held.values[c]) * scale.inverse) + 128);
      }
      to[u] = numbers;
    }
  }
}

/// The stride of an axis, or 0 if the axis has size 1, whose stride is irrelevant.
int64_t stride_of(const Tensor& tensor, int axis) { return tensor.dim(axis) == 1 ? 0 : tensor.strides()[axis]; }

StorePart part_of(const Tensor& cache, const Tensor& fresh, const Tensor& scales) {
  if (!fresh.defined()) return {};
  StorePart part{.from = fresh.raw(),
                 .to = cache.raw(),
                 .units = static_cast<int>(fresh.dim(3)),
                 .from_row = stride_of(fresh, 0),
                 .from_token = stride_of(fresh, 1),
                 .from_head = stride_of(fresh, 2),
                 .to_row = stride_of(cache, 0),
                 .to_head = stride_of(cache, 1),
                 .to_token = stride_of(cache, 2)};
  if (scales.defined()) {
    part.scales = scales.data<float>();
    part.scale_row = stride_of(scales, 0);
    part.scale_head = stride_of(scales, 1);
    part.scale_token = stride_of(scales, 2);
  }
  return part;
}

/// True if all rows can be moved in groups of kCount columns.
template <class From, class To, int kCount>
bool in_columns(const StorePart& part) {
  constexpr int64_t kFrom = alignof(Columns<From, kCount>);
  constexpr int64_t kTo = alignof(Columns<To, kCount>);
  const auto place = [](const void* pointer) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer)); };
  const auto whole = [](int64_t align, std::initializer_list<int64_t> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [align](int64_t value) { return value % align == 0; });
  };
  const auto from = [](int64_t stride) { return stride * static_cast<int64_t>(sizeof(From)); };
  const auto to = [](int64_t stride) { return stride * static_cast<int64_t>(sizeof(To)); };
  return part.units % kCount == 0 &&
         whole(kFrom, {place(part.from), from(part.from_row), from(part.from_token), from(part.from_head)}) &&
         whole(kTo, {place(part.to), to(part.to_row), to(part.to_head), to(part.to_token)});
}

StoreParams store_params(const CacheStore& args) {
  const int64_t tokens = args.k.dim(0) * args.k.dim(1);
  const int64_t columns = args.k.dim(2) * (args.k.dim(3) + (args.v.defined() ? args.v.dim(3) : 0));
  LAMINA_CHECK(tokens < (int64_t{1} << 31) && columns < (int64_t{1} << 25), kStoreName, ": ", tokens, " tokens of ",
               columns, " numbers exceed the limit of one launch; store fewer at a time");
  return {{part_of(args.k_cache, args.k, args.scales.k), part_of(args.v_cache, args.v, args.scales.v)},
          static_cast<int>(args.k.dim(2)),
          static_cast<int>(args.k.dim(1)),
          args.k_cache.dim(2),
          args.places.data<int64_t>(),
          lamina::cuda::fault_slot(args.k.device())};
}

/// Launches one or more blocks per token. One thread handles each of the token's `items`.
void launch(void (*kernel)(StoreParams), const StoreParams& p, int items, const CacheStore& args) {
  const int threads = std::min((items + kWarp - 1) / kWarp * kWarp, kStoreThreads);
  const dim3 grid(static_cast<unsigned>(args.k.dim(0) * args.k.dim(1)),
                  static_cast<unsigned>(std::min((items + threads - 1) / threads, 64)));
  lamina::cuda::launch_dependent(kernel, grid, dim3(static_cast<unsigned>(threads)), 0, args.k.device(), p);
  lamina::cuda::check_launch(kStoreName);
}

template <class From, class To>
void store(const CacheStore& args) {
  constexpr bool kRounds = std::is_same_v<To, uint8_t>;
  constexpr int kCount = kRounds ? kByteColumns : kPackColumns;
  StoreParams p = store_params(args);
  const bool packs = in_columns<From, To, kCount>(p.parts[0]) && in_columns<From, To, kCount>(p.parts[1]);
  if (packs) {
    for (StorePart& part : p.parts) part.units /= kCount;
  }
  if constexpr (kRounds) {
    launch(packs ? quantize_kernel<From, kCount> : quantize_kernel<From, 1>, p,
           p.heads * (args.v.defined() ? 2 : 1) * kWarp, args);
  } else {
    launch(packs ? store_kernel<From, To, kCount> : store_kernel<From, To, 1>, p,
           p.heads * (p.parts[0].units + p.parts[1].units), args);
  }
}

}  // namespace

void cache_store(const CacheStore& args) {
  if (args.k.numel() == 0 && (!args.v.defined() || args.v.numel() == 0)) return;
  lamina::cuda::visit_floating(kStoreName, args.k.dtype(), [&](auto from) {
    using lamina::cuda::DeviceType;
    using From = DeviceType<typename decltype(from)::type>;
    if (args.k_cache.dtype() == DType::u8) return store<From, uint8_t>(args);
    lamina::cuda::visit_floating(kStoreName, args.k_cache.dtype(),
                                 [&](auto to) { store<From, DeviceType<typename decltype(to)::type>>(args); });
  });
}

}  // namespace lamina::ops::cuda
