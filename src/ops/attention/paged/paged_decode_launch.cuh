#pragma once

// Instantiates and launches the tensor-core kernel of one cache type.

#include <algorithm>

#include "lamina/ops/attention/paged/paged_decode.cuh"
#include "lamina/ops/attention/paged/paged_decode_item.cuh"

namespace lamina::ops::cuda::paged {

constexpr int kWidest = 256;
constexpr int kMostUnits = 1 << 18;

/// Counters of finished splits. Every launch leaves them zero.
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

template <class C, class M, int kD, int kParts, int kTiles>
__global__ void __launch_bounds__(DecodeBlock<C, M, kD, kParts, kTiles>::kThreads, kD == kWidest ? 1 : 2)
    paged_decode_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) unsigned char memory[];
  lamina::cuda::grid_dependency_wait();
  DecodeBlock<C, M, kD, kParts, kTiles>(p, memory).run();
}

template <class C, class M, int kD, int kParts, int kTiles>
bool launch(const PagedDecode& args, Params p) {
  using Block = DecodeBlock<C, M, kD, kParts, kTiles>;
  constexpr const char* kOp = "paged_attention";
  const Device& device = args.q.device();
  const size_t shared = Block::bytes(p.rows.rows);
  int limit = 0;
  int all = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), kOp);
  LAMINA_CUDA(cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device.index()), kOp);
  if (shared > static_cast<size_t>(limit)) return false;
  int64_t most_queries = 1;
  for (size_t r = 0; r + 1 < args.rows.host_starts.size(); ++r) {
    const int64_t count = args.rows.host_starts[r + 1] - args.rows.host_starts[r];
    if (count <= kMostPagedQueries) most_queries = std::max(most_queries, count);
  }
  p.row_blocks = static_cast<int>((p.group * most_queries + Block::kRows - 1) / Block::kRows);
  const int64_t units = int64_t{p.rows.rows} * p.rows.n_kv_heads * p.row_blocks;
  if (units > kMostUnits) return false;
  p.places = lamina::cuda::processors(device);
  p.fixed = device.deterministic();
  const int64_t tiles = (int64_t{p.rows.width} << p.rows.page_bits) / kTileKeys;
  const int64_t items = p.fixed ? units * (tiles / kFixedSplit + 1) : units + p.places;
  const Tensor parts = Tensor::empty(Shape{items * Block::kRows * (p.d_v + 2)}, DType::f32, device);
  p.parts = parts.data<float>();
  p.part_sums = reinterpret_cast<float2*>(p.parts + items * Block::kRows * p.d_v);
  p.counters = lamina::cuda::attached<SplitCounters>(device).data();
  constexpr size_t kReserved = 1024;  // shared memory that the driver keeps per block
  const int resident = static_cast<size_t>(all) >= 2 * (shared + kReserved) && kD != kWidest ? 2 : 1;
  const auto kernel = paged_decode_kernel<C, M, kD, kParts, kTiles>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), kOp);
  lamina::cuda::launch_dependent(kernel, dim3(static_cast<unsigned>(std::min<int64_t>(p.places * resident, items))),
                                 dim3(Block::kThreads), shared, device, p);
  lamina::cuda::check_launch(kOp);
  return true;
}

template <class C, class M, int kParts, int kTiles>
bool launch_width(const PagedDecode& args, const Params& p) {
  const int widest = std::max(p.d_qk, p.d_v);
  if (widest <= 64) return launch<C, M, 64, kParts, kTiles>(args, p);
  if (widest <= 128) return launch<C, M, 128, kParts, kTiles>(args, p);
  return launch<C, M, 256, kParts, kTiles>(args, p);
}

template <class C, class M>
bool launch_type(const PagedDecode& args, const Params& p, DType exact) {
  int64_t queries = p.group;
  for (size_t r = 0; r + 1 < args.rows.host_starts.size(); ++r) {
    const int64_t count = args.rows.host_starts[r + 1] - args.rows.host_starts[r];
    if (count <= kMostPagedQueries) queries = std::max(queries, p.group * count);
  }
  const bool wide = queries > 8;
  if (p.q_type == exact) return wide ? launch_width<C, M, 1, 2>(args, p) : launch_width<C, M, 1, 1>(args, p);
  return wide ? launch_width<C, M, 3, 2>(args, p) : launch_width<C, M, 3, 1>(args, p);
}

/// Whether the kernel can read keys, values and queries 16 bytes at a time.
template <class C>
bool has_chunks(const Params& p) {
  constexpr int kColumns = 16 / static_cast<int>(sizeof(C));
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  const int64_t q_row = p.q_stride * static_cast<int64_t>(size_of(p.q_type));
  return p.d_qk > 0 && p.d_v > 0 && std::max(p.d_qk, p.d_v) <= kWidest && p.d_qk % kColumns == 0 &&
         p.d_v % kColumns == 0 && p.d_qk % 8 == 0 && p.d_v % 8 == 0 && aligned(p.k) && aligned(p.v) && aligned(p.q) &&
         q_row % 16 == 0 && aligned(p.k_scales) && aligned(p.v_scales) && p.rows.rows <= kMostRows;
}

/// Defines decode_on_tensor_cores<C> with products in M; queries of type `exact` need no splitting.
#define LAMINA_PAGED_DECODE(C, M, exact)                              \
  template <>                                                         \
  bool decode_on_tensor_cores<C>(const PagedDecode& args, Params p) { \
    return has_chunks<C>(p) && launch_type<C, M>(args, p, exact);     \
  }

}  // namespace lamina::ops::cuda::paged
