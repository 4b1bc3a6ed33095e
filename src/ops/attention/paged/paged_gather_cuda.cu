// Copies a row's pages to a contiguous buffer, for attention() of a prompt chunk. Memory-bound: a thread converts eight
// columns of one key or value, or one column if the rows are not aligned. 8-bit caches are dequantized.
#include <algorithm>

#include "lamina/ops/attention/paged/page_rows.cuh"
#include "lamina/ops/attention/paged/paged_attention_kernel.h"

namespace lamina::ops::cuda {
namespace {

constexpr const char* kGatherName = "paged_gather";
constexpr int kGatherThreads = 256;
constexpr int kGatherColumns = 8;

struct GatheredPart {
  const void* from;
  const float* scales;  ///< scales of an 8-bit cache, else null
  void* to;
  int width;
  int units;  ///< groups of columns per head
};
struct GatherParams {
  PageRows rows;
  GatheredPart parts[2];  ///< keys, values
  int row;
  int first;
  int keys;
};

template <class From, class To, int kCount>
__global__ void __launch_bounds__(kGatherThreads) gather_kernel(const __grid_constant__ GatherParams p) {
  lamina::cuda::grid_dependency_wait();
  const GatheredPart& part = p.parts[blockIdx.y];
  const int heads = p.rows.n_kv_heads;
  const int64_t all = static_cast<int64_t>(p.keys) * heads * part.units;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kGatherThreads + threadIdx.x;
  if (n >= all) return;
  const auto unit = static_cast<int>(n % part.units);
  const auto head = static_cast<int>(n / part.units % heads);
  const auto position = p.first + static_cast<int>(n / part.units / heads);
  const int page = p.rows.page_of(p.row, position);
  PageColumns<To, kCount> result{};
  if (page >= 0) {
    const int64_t entry = p.rows.entry(page, head, position);
    const auto held = *reinterpret_cast<const PageColumns<From, kCount>*>(static_cast<const From*>(part.from) +
                                                                          entry * part.width + unit * kCount);
    const float scale = part.scales != nullptr ? part.scales[entry] : 1.0F;
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      if constexpr (std::is_same_v<From, uint8_t>) {
        result.values[c] = from_float<To>(static_cast<float>(static_cast<int>(held.values[c]) - 128) * scale);
      } else {
        result.values[c] = from_float<To>(to_float(held.values[c]));
      }
    }
  }
  *reinterpret_cast<PageColumns<To, kCount>*>(static_cast<To*>(part.to) + n * kCount) = result;
}

template <class From, class To>
void gather(const PagedGather& args) {
  const auto part = [](const Tensor& pages, const Tensor& scales, const Tensor& to) -> GatheredPart {
    if (!to.defined()) return {};
    const int width = narrow(to.dim(3));
    return {pages.raw(), scales.defined() ? scales.data<float>() : nullptr, to.raw(), width, width};
  };
  GatherParams p{page_rows(args.cache, args.rows),
                 {part(args.cache.k, args.cache.scales.k, args.k), part(args.cache.v, args.cache.scales.v, args.v)},
                 static_cast<int>(args.row),
                 static_cast<int>(args.first),
                 static_cast<int>(args.k.dim(1))};
  const auto packs = [](const GatheredPart& each) {
    return each.from == nullptr || (fits_columns<From, kGatherColumns>(each.from, each.width, {}) &&
                                    fits_columns<To, kGatherColumns>(each.to, each.width, {}));
  };
  const bool packed = packs(p.parts[0]) && packs(p.parts[1]);
  int64_t most = 0;
  for (GatheredPart& each : p.parts) {
    if (packed) each.units /= kGatherColumns;
    most = std::max(most, static_cast<int64_t>(p.keys) * p.rows.n_kv_heads * each.units);
  }
  if (most == 0) return;
  const int64_t blocks = (most + kGatherThreads - 1) / kGatherThreads;
  LAMINA_CHECK(blocks < (int64_t{1} << 31), kGatherName, ": ", p.keys, " keys exceed the CUDA grid limit");
  const dim3 grid(static_cast<unsigned>(blocks), args.v.defined() ? 2 : 1);
  lamina::cuda::launch_dependent(packed ? gather_kernel<From, To, kGatherColumns> : gather_kernel<From, To, 1>, grid,
                                 dim3(kGatherThreads), 0, args.k.device(), p);
  lamina::cuda::check_launch(kGatherName);
}

}  // namespace

void paged_gather(const PagedGather& args) {
  lamina::cuda::visit_floating(kGatherName, args.k.dtype(), [&](auto to) {
    using To = DeviceType<typename decltype(to)::type>;
    if (args.cache.k.dtype() == DType::u8) return gather<uint8_t, To>(args);
    lamina::cuda::visit_floating(kGatherName, args.cache.k.dtype(),
                                 [&](auto from) { gather<DeviceType<typename decltype(from)::type>, To>(args); });
  });
}

}  // namespace lamina::ops::cuda
