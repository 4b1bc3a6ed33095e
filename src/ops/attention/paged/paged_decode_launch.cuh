#pragma once

// Instantiates and launches the tensor-core kernel of one cache type.

#include <algorithm>

#include "lamina/ops/attention/paged/paged_decode.cuh"
#include "lamina/ops/attention/paged/paged_decode_item.cuh"
#include "lamina/ops/attention/paged/paged_decode_row.cuh"

namespace lamina::ops::cuda::paged {

constexpr int kWidest = 256;
constexpr int kMostUnits = 1 << 18;
constexpr size_t kReservedShared = 1024;  // shared memory that the driver keeps per block

/// Counters of finished splits. Every launch leaves them at zero.
class SplitCounters {
 public:
  explicit SplitCounters(int /*device*/) {
    constexpr const char* kOwner = "paged_attention";
    LAMINA_CUDA(cudaMalloc(reinterpret_cast<void**>(&counters_), kMostUnits * sizeof(int)), kOwner);
    LAMINA_CUDA(cudaMemset(counters_, 0, kMostUnits * sizeof(int)), kOwner);
    LAMINA_CUDA(cudaStreamSynchronize(nullptr), kOwner);  // kernels run on another CUDA stream
  }
  ~SplitCounters() { cudaFree(counters_); }
  SplitCounters(const SplitCounters&) = delete;
  SplitCounters& operator=(const SplitCounters&) = delete;

  int* data() const { return counters_; }

 private:
  int* counters_ = nullptr;
};

/// Maximum number of warps per block. Batches with many units use fewer warps per block and more blocks per SM; the
/// rings of an SM have the same size in total.
constexpr int most_warps(int d) { return d == 64 ? 8 : 4; }
constexpr int resident_blocks(int d, int warps) { return d == kWidest ? 1 : 2 * most_warps(d) / warps; }

template <class C, class M, int kD, int kParts, int kTiles, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, resident_blocks(kD, kWarps))
    paged_decode_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) unsigned char memory[];
  DecodeBlock<C, M, kD, kParts, kTiles, kWarps>(p, memory).run();
}

template <class C, class M, int kD, int kParts, int kTiles, int kWarps>
bool launch(const PagedDecode& args, Params p) {
  using Block = DecodeBlock<C, M, kD, kParts, kTiles, kWarps>;
  constexpr const char* kOp = "paged_attention";
  const Device& device = args.q.device();
  const size_t shared = Block::bytes(p.rows.rows);
  int limit = 0;
  int all = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), kOp);
  LAMINA_CUDA(cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device.index()), kOp);
  if (shared > static_cast<size_t>(limit)) return false;
  const int resident = std::clamp(static_cast<int>(all / (shared + kReservedShared)), 1, resident_blocks(kD, kWarps));
  const int sms = lamina::cuda::sm_count(device);
  // Small blocks: at least one place per unit, so that rows of equal length are not split.
  const int places = kWarps < most_warps(kD) ? std::min(p.units, sms * std::min(resident, 4)) : sms * resident;
  p.places = std::min(places, Block::kMostSplits);
  const int64_t units = p.units;
  const int64_t tiles = (int64_t{p.rows.width} << p.rows.page_bits) / kTileKeys;
  if (p.fixed && tiles / kFixedSplit + 1 > Block::kMostSplits) return false;
  const int64_t items = p.fixed ? units * (tiles / kFixedSplit + 1) : units + p.places;
  const Tensor parts = Tensor::empty(Shape{items * Block::kRows * (p.d_v + 2)}, DType::f32, device);
  p.parts = parts.data<float>();
  p.part_sums = reinterpret_cast<float2*>(p.parts + items * Block::kRows * p.d_v);
  p.counters = lamina::cuda::attached<SplitCounters>(device).data();
  const auto kernel = paged_decode_kernel<C, M, kD, kParts, kTiles, kWarps>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), kOp);
  const int64_t grid = std::min({int64_t{sms} * resident, items, lamina::cuda::kMaxDependentLaunchBlocks});
  lamina::cuda::launch_dependent(kernel, dim3(static_cast<unsigned>(grid)), dim3(Block::kThreads), shared, device, p);
  lamina::cuda::check_launch(kOp);
  return true;
}

/// Halves the number of warps per block until all units are resident at once. That number affects the order of sums, so
/// it stays fixed if results must not depend on the rest of the batch.
template <class C, class M, int kD, int kParts, int kTiles, int kWarps = most_warps(kD)>
bool launch_warps(const PagedDecode& args, const Params& p) {
  if constexpr (kD != kWidest && kWarps > 2) {
    const int sms = lamina::cuda::sm_count(args.q.device());
    if (!p.fixed && p.units > sms * resident_blocks(kD, kWarps)) {
      return launch_warps<C, M, kD, kParts, kTiles, kWarps / 2>(args, p);
    }
  }
  return launch<C, M, kD, kParts, kTiles, kWarps>(args, p);
}

template <class C, class M, int kD, int kParts>
__global__ void __maxnreg__((RowBlock<C, M, kD, kParts>::kRegisters))
    paged_row_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) unsigned char memory[];
  RowBlock<C, M, kD, kParts>(p, memory).run();
}

/// True for one row with one new token, whose table is too long for a block per KV head. The row's result depends on
/// the number of SMs, so results that must not depend on the batch need the general kernel.
inline bool is_long_row(const Params& p) {
  constexpr int64_t kShortTable = 1536;  // keys; attention_output_step() attends to so many
  return p.rows.rows == 1 && p.rows.one_each && p.group <= 8 && p.plain && !p.fixed && std::max(p.d_qk, p.d_v) <= 128 &&
         int64_t{p.rows.width} << p.rows.page_bits > kShortTable;
}

/// Launches the kernel for one long row (paged_decode_row.cuh).
template <class C, class M, int kD, int kParts>
bool launch_row(const PagedDecode& args, Params p) {
  using Block = RowBlock<C, M, kD, kParts>;
  constexpr const char* kOp = "paged_attention";
  constexpr int kSharedPercent = 58;  // the carve-out of row_stream.cuh; another one would exclude its blocks
  const Device& device = args.q.device();
  const int heads = p.rows.n_kv_heads;
  p.places = std::min(lamina::cuda::sm_count(device) / heads, Block::kMostSplits);
  if (p.places == 0) return false;
  const int64_t parts = int64_t{p.places} * heads * Block::kHeads;
  const Tensor memory = Tensor::empty(Shape{parts * (p.d_v + 2)}, DType::f32, device);
  p.parts = memory.data<float>();
  p.part_sums = reinterpret_cast<float2*>(p.parts + parts * p.d_v);
  p.counters = lamina::cuda::attached<SplitCounters>(device).data();
  const auto kernel = paged_row_kernel<C, M, kD, kParts>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Block::kSharedBytes), kOp);
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kSharedPercent), kOp);
  lamina::cuda::launch_dependent(kernel, dim3(static_cast<unsigned>(p.places * heads)), dim3(Block::kThreads),
                                 Block::kSharedBytes, device, p);
  lamina::cuda::check_launch(kOp);
  return true;
}

template <class C, class M, int kParts, int kTiles>
bool launch_width(const PagedDecode& args, Params p, int64_t queries) {
  constexpr int kRows = kTiles * 8;
  p.fixed = args.q.device().deterministic();
  p.row_blocks = static_cast<int>((queries + kRows - 1) / kRows);
  const int64_t units = int64_t{p.rows.rows} * p.rows.n_kv_heads * p.row_blocks;
  if (units > kMostUnits) return false;
  p.units = static_cast<int>(units);
  const int widest = std::max(p.d_qk, p.d_v);
  if constexpr (kTiles == 1) {
    if (is_long_row(p)) {
      return widest <= 64 ? launch_row<C, M, 64, kParts>(args, p) : launch_row<C, M, 128, kParts>(args, p);
    }
  }
  if (widest <= 64) return launch_warps<C, M, 64, kParts, kTiles>(args, p);
  if (widest <= 128) return launch_warps<C, M, 128, kParts, kTiles>(args, p);
  return launch_warps<C, M, 256, kParts, kTiles>(args, p);
}

template <class C, class M>
bool launch_type(const PagedDecode& args, const Params& p, DType exact) {
  int64_t queries = p.group;  // queries of a KV head, in the row with the most new tokens
  for (size_t r = 0; r + 1 < args.rows.host_starts.size(); ++r) {
    const int64_t count = args.rows.host_starts[r + 1] - args.rows.host_starts[r];
    if (count <= kMostPagedQueries) queries = std::max(queries, p.group * count);
  }
  const bool wide = queries > 8;
  if (p.q_type == exact) {
    return wide ? launch_width<C, M, 1, 2>(args, p, queries) : launch_width<C, M, 1, 1>(args, p, queries);
  }
  return wide ? launch_width<C, M, 3, 2>(args, p, queries) : launch_width<C, M, 3, 1>(args, p, queries);
}

/// True if the kernel can read keys, values and queries 16 bytes at a time.
template <class C>
bool has_chunks(const Params& p) {
  constexpr int kColumns = 16 / static_cast<int>(sizeof(C));
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  const int64_t q_row = p.q_stride * static_cast<int64_t>(size_of(p.q_type));
  return p.d_qk > 0 && p.d_v > 0 && std::max(p.d_qk, p.d_v) <= kWidest && p.d_qk % kColumns == 0 &&
         p.d_v % kColumns == 0 && p.d_qk % 8 == 0 && p.d_v % 8 == 0 && aligned(p.k) && aligned(p.v) && aligned(p.q) &&
         q_row % 16 == 0 && aligned(p.k_scales) && aligned(p.v_scales) && aligned(p.y) && aligned(p.cos) &&
         aligned(p.sin) && p.rows.rows <= kMostRows;
}

/// Defines decode_on_tensor_cores<C> with products in type M. Queries of type `exact` need no splitting.
#define LAMINA_PAGED_DECODE(C, M, exact)                              \
  template <>                                                         \
  bool decode_on_tensor_cores<C>(const PagedDecode& args, Params p) { \
    return has_chunks<C>(p) && launch_type<C, M>(args, p, exact);     \
  }

}  // namespace lamina::ops::cuda::paged
