// Storing is bound by memory, and while decoding by the launch itself, so keys and values share one. A token of a row
// has a block (several where its heads are many), whose threads each move eight columns of one head, or one column
// where rows do not lie in whole packs: the keys' columns first, then the values'. Every block reads its row's place
// from the device and leaves the cache alone where the row's tokens do not fit.
#include "lamina/ops/attention/cache_store.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::Fault;
using lamina::cuda::FaultSlot;

constexpr const char* kStoreName = "cache_store";
constexpr int kStoreThreads = 256;
constexpr int kPackColumns = 8;

/// A cache and what goes into it; strides in elements.
struct StorePart {
  const void* from;
  void* to;
  int units;  ///< of a head: stretches of columns that a thread moves
  int64_t from_row, from_token, from_head;
  int64_t to_row, to_head, to_token;
};

struct StoreParams {
  StorePart parts[2];  ///< keys, values
  int heads;
  int seq;
  int64_t capacity;
  const int64_t* places;
  FaultSlot* faults;
};

/// kCount elements in accesses of at most 16 bytes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount > 16 ? 16 : sizeof(T) * kCount) Columns {
  T values[kCount];
};

template <class From, class To, int kCount>
__global__ void __launch_bounds__(kStoreThreads) store_kernel(const __grid_constant__ StoreParams p) {
  lamina::cuda::wait_for_previous();
  const int b = static_cast<int>(blockIdx.x) / p.seq;
  const int s = static_cast<int>(blockIdx.x) % p.seq;
  const int64_t place = p.places[b];
  if (place < 0 || place > p.capacity - p.seq) {
    if (s == 0 && blockIdx.y == 0 && threadIdx.x == 0) lamina::cuda::report(p.faults, Fault::cache_place, place);
    return;
  }
  const int keys = p.heads * p.parts[0].units;
  const int all = keys + p.heads * p.parts[1].units;
  for (int n = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x); n < all;
       n += static_cast<int>(gridDim.y * blockDim.x)) {
    const StorePart& part = p.parts[n < keys ? 0 : 1];
    const int at = n < keys ? n : n - keys;
    const int head = at / part.units;
    const int column = (at - head * part.units) * kCount;
    const int64_t from = b * part.from_row + s * part.from_token + head * part.from_head + column;
    const int64_t to = b * part.to_row + head * part.to_head + (place + s) * part.to_token + column;
    const auto held = *reinterpret_cast<const Columns<From, kCount>*>(static_cast<const From*>(part.from) + from);
    Columns<To, kCount> result;
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      result.values[c] = lamina::cuda::from_float<To>(lamina::cuda::to_float(held.values[c]));
    }
    *reinterpret_cast<Columns<To, kCount>*>(static_cast<To*>(part.to) + to) = result;
  }
}

/// Strides of dimensions of one element mean nothing.
int64_t stride_of(const Tensor& tensor, int axis) { return tensor.dim(axis) == 1 ? 0 : tensor.strides()[axis]; }

StorePart part_of(const Tensor& cache, const Tensor& fresh) {
  if (!fresh.defined()) return {};
  return {.from = fresh.raw(),
          .to = cache.raw(),
          .units = static_cast<int>(fresh.dim(3)),
          .from_row = stride_of(fresh, 0),
          .from_token = stride_of(fresh, 1),
          .from_head = stride_of(fresh, 2),
          .to_row = stride_of(cache, 0),
          .to_head = stride_of(cache, 1),
          .to_token = stride_of(cache, 2)};
}

bool stored_in_packs(const StorePart& part, int64_t from_size, int64_t to_size) {
  const auto whole = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  const auto all_whole = [](int64_t a, int64_t b, int64_t c, int64_t size) {
    return a * size % 16 == 0 && b * size % 16 == 0 && c * size % 16 == 0;
  };
  return part.units % kPackColumns == 0 && whole(part.from) && whole(part.to) &&
         all_whole(part.from_row, part.from_token, part.from_head, from_size) &&
         all_whole(part.to_row, part.to_head, part.to_token, to_size);
}

template <class From, class To>
void store(const CacheStore& args) {
  const Device& device = args.k.device();
  const int64_t tokens = args.k.dim(0) * args.k.dim(1);
  const int64_t columns = args.k.dim(2) * (args.k.dim(3) + (args.v.defined() ? args.v.dim(3) : 0));
  LAMINA_CHECK(tokens < (int64_t{1} << 31) && columns < (int64_t{1} << 30), kStoreName, ": ", tokens, " tokens of ",
               columns, " numbers are more than one launch takes; store fewer at a time");
  StoreParams p{{part_of(args.k_cache, args.k), part_of(args.v_cache, args.v)},
                static_cast<int>(args.k.dim(2)),
                static_cast<int>(args.k.dim(1)),
                args.k_cache.dim(2),
                args.places.data<int64_t>(),
                lamina::cuda::fault_slot(device)};
  const bool packs =
      stored_in_packs(p.parts[0], sizeof(From), sizeof(To)) && stored_in_packs(p.parts[1], sizeof(From), sizeof(To));
  if (packs) {
    for (StorePart& part : p.parts) part.units /= kPackColumns;
  }
  const int items = p.heads * (p.parts[0].units + p.parts[1].units);
  const int threads =
      std::min((items + lamina::cuda::kWarp - 1) / lamina::cuda::kWarp * lamina::cuda::kWarp, kStoreThreads);
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(std::min((items + threads - 1) / threads, 64)));
  const auto kernel = packs ? store_kernel<From, To, kPackColumns> : store_kernel<From, To, 1>;
  lamina::cuda::launch_dependent(kernel, grid, dim3(static_cast<unsigned>(threads)), 0, device, p);
  lamina::cuda::check_launch(kStoreName);
}

}  // namespace

void cache_store(const CacheStore& args) {
  if (args.k.numel() == 0 && (!args.v.defined() || args.v.numel() == 0)) return;
  lamina::cuda::visit_floating(kStoreName, args.k.dtype(), [&](auto from) {
    lamina::cuda::visit_floating(kStoreName, args.k_cache.dtype(), [&](auto to) {
      using lamina::cuda::DeviceType;
      store<DeviceType<typename decltype(from)::type>, DeviceType<typename decltype(to)::type>>(args);
    });
  });
}

}  // namespace lamina::ops::cuda
