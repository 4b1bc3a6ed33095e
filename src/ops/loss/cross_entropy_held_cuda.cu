// Cross entropy of rows that fit on chip. The logits are read once, kept, and turned into gradients, which are written
// once. 8192 × 50,304 in bf16 take 0.39 ms (4.2 TB/s, H200).
//
// Short rows are kept in the registers of a warp. Longer rows are kept in the shared memory of a cluster of up to eight
// blocks; each block holds a part. Parts are small enough for four blocks per SM, so that one block writes while
// another waits for logits or for the cluster's sums. Each thread copies its packs with cp.async, kAhead batches ahead,
// and reads only what it copied itself. The blocks exchange the maximum and the sum of their parts, combine them in the
// same order and write their part of the gradient. The last block also handles the elements after the last whole pack.

#include <cooperative_groups.h>

#include "lamina/ops/loss/cross_entropy_device.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"

namespace lamina::ops::cuda::loss {
namespace {

namespace cg = cooperative_groups;

constexpr int kWarpRows = 8;       // rows per block
constexpr int kMostPerLane = 16;   // elements of a row per lane
constexpr int kPartThreads = 256;  // threads of a block that holds a part of a row
constexpr int kMostParts = 8;
constexpr int kBlocksPerSm = 4;                    // blocks per SM
constexpr int64_t kPartBytes = int64_t{54} << 10;  // shared memory per block for that occupancy
/// Packs that a thread sums at a time: sixteen elements. More would need too many registers for four blocks per SM.
template <class T>
constexpr int kBatch = 16 / Pack<T>::kSize;
/// Batches that a thread has in flight.
template <class T>
constexpr int kAhead = 8 / kBatch<T>;

template <class T, int kPerLane>
__global__ void __launch_bounds__(kWarpRows* kWarp)
    row_per_warp(const T* logits, T* dlogits, const __grid_constant__ Rows args) {
  using Sums = RowSums<false>;
  const int lane = threadIdx.x % kWarp;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarpRows;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kWarpRows + threadIdx.x / kWarp; index < args.rows;
       index += step) {
    const T* row = logits + index * args.stride;
    T* out = dlogits + index * args.out_stride;
    const int64_t target = target_of(args, index, lane == 0);
    float held[kPerLane];
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) {
      const int i = lane + n * kWarp;
      held[n] = i < args.classes ? to_float(row[i]) : 0.0F;
    }
    float lse = 0.0F;
    if (target >= 0 && args.losses != nullptr) {
      const float u_of_target = transformed(args, to_float(row[target]), target);
      Sums mine;
      float u[kPerLane];
#pragma unroll
      for (int n = 0; n < kPerLane; ++n) {
        const int i = lane + n * kWarp;
        u[n] = i < args.classes ? transformed(args, held[n], i) : -INFINITY;
        if (i < args.classes) mine.total += u[n];
      }
      mine.take(u, 1.0F);
      Sums all;
      all.most = warp_max(mine.most);
      all.sum = warp_sum(mine.sum_relative_to(all.most, 1.0F));
      all.total = warp_sum(mine.total);
      lse = all.lse(args, 1.0F);
      if (lane == 0) put_loss(args, index, all, lse, u_of_target);
    } else if (target >= 0) {
      lse = args.lse[index];
    }
    if (dlogits == nullptr) continue;
    const RowGradient<false, T> gradient(args, index, target, lse);
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) {
      const int i = lane + n * kWarp;
      if (i >= args.classes) break;
      out[i] = target >= 0 ? gradient.of_one(args, held[n], i) : from_float<T>(0.0F);
    }
  }
}

/// The packs of a row that belong to one block.
struct Part {
  int first;
  int packs;
};

[[maybe_unused]] __device__ inline Part part_of(int packs, int rank, int parts) {
  const int each = (packs + parts - 1) / parts;
  const int first = min(rank * each, packs);
  return {first, min(each, packs - first)};
}

/// Copies the part to `held` (shared memory) and returns this block's sums over it.
template <bool kPlain, class T>
__device__ RowSums<kPlain> copy_and_sum(const Rows& args, const T* from, int first, int packs, Pack<T>* held, float k) {
  constexpr int kSize = Pack<T>::kSize;
  const auto pack = [](int batch, int n) {
    return static_cast<int>(threadIdx.x) + (batch * kBatch<T> + n) * kPartThreads;
  };
  const auto copy = [&](int batch) {
#pragma unroll
    for (int n = 0; n < kBatch<T>; ++n) {
      const int p = pack(batch, n);
      if (p < packs) cp_async_16(shared_address(held + p), from + p * kSize, true);
    }
    cp_async_commit();
  };
#pragma unroll
  for (int batch = 0; batch < kAhead<T>; ++batch) copy(batch);
  RowSums<kPlain> mine;
  const int batches = (packs + kBatch<T> * kPartThreads - 1) / (kBatch<T> * kPartThreads);
  for (int batch = 0; batch < batches; ++batch) {
    copy(batch + kAhead<T>);
    cp_async_wait<kAhead<T>>();
    Pack<T> taken[kBatch<T>];
#pragma unroll
    for (int n = 0; n < kBatch<T>; ++n) {
      if (pack(batch, n) < packs) taken[n] = held[pack(batch, n)];
    }
    const auto element = [&](int n) {
      const int p = pack(batch, n);
      return p < packs ? first + p * kSize : -1;
    };
    mine.take_packs(args, taken, element, k);
  }
  cp_async_wait();
  return mine;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // clusters need compute capability 9.0
/// The sums over all blocks of the cluster. Every block combines them in block order.
template <bool kPlain>
__device__ RowSums<kPlain> of_cluster(const cg::cluster_group& cluster, const RowSums<kPlain>& mine, float k,
                                      RowSums<kPlain>* published, RowSums<kPlain>* all) {
  const int parts = static_cast<int>(cluster.num_blocks());
  if (threadIdx.x == 0) *published = mine;
  cluster.sync();
  if (threadIdx.x < parts) all[threadIdx.x] = *cluster.map_shared_rank(published, threadIdx.x);
  __syncthreads();
  RowSums<kPlain> row;
  for (int part = 0; part < parts; ++part) row.most = fmaxf(row.most, all[part].most);
  for (int part = 0; part < parts; ++part) {
    row.sum += all[part].sum_relative_to(row.most, k);
    row.total += all[part].total;
  }
  return row;
}
#endif

/// A cluster per row. dlogits may alias logits, because each thread writes only what it has read.
template <class T, bool kPlain>
__global__ void __launch_bounds__(kPartThreads, kBlocksPerSm)
    row_per_cluster(const T* logits, T* dlogits, const __grid_constant__ Rows args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kSize = Pack<T>::kSize;
  using Sums = RowSums<kPlain>;
  extern __shared__ uint4 room[];
  __shared__ float scratch[kWarp];
  __shared__ alignas(16) char published[sizeof(Sums)];
  __shared__ alignas(16) char all[kMostParts * sizeof(Sums)];
  const cg::cluster_group cluster = cg::this_cluster();
  const int parts = static_cast<int>(cluster.num_blocks());
  const int rank = static_cast<int>(cluster.block_rank());
  const int64_t index = blockIdx.x / parts;
  const auto classes = static_cast<int>(args.classes);
  const Part part = part_of(classes / kSize, rank, parts);
  const int first = part.first * kSize;
  const T* row = logits + index * args.stride;
  T* out = dlogits + index * args.out_stride;
  // The single element after the last whole pack that this thread handles, or −1.
  const int after_packs = classes / kSize * kSize + static_cast<int>(threadIdx.x);
  const int single = rank == parts - 1 && after_packs < classes ? after_packs : -1;
  const int64_t target = target_of(args, index, rank == 0 && threadIdx.x == 0);
  if (target < 0) {  // the same for the whole cluster, so no block waits for another
    for (int p = threadIdx.x; p < part.packs; p += kPartThreads) {
      store_vector(out + first + p * kSize, zeros<T>());
    }
    if (single >= 0) out[single] = from_float<T>(0.0F);
    return;
  }
  auto* held = reinterpret_cast<Pack<T>*>(room);
  const float k = Sums::unit(args);
  const float u_of_target = transformed(args, to_float(row[target]), target);
  float tail = 0.0F;
  if (single >= 0) tail = to_float(row[single]);
  Sums mine = copy_and_sum<kPlain>(args, row + first, first, part.packs, held, k);
  if (single >= 0) {
    const float x[1] = {Sums::element(args, tail, single)};
    mine.take(x, k);
    if (!kPlain) mine.total += x[0];
  }
  const Sums sums = of_cluster(cluster, mine.of_block(args, k, scratch), k, reinterpret_cast<Sums*>(published),
                               reinterpret_cast<Sums*>(all));
  cluster.barrier_arrive();  // this block has read the others' sums
  const float lse = sums.lse(args, k);
  if (rank == 0 && threadIdx.x == 0) put_loss(args, index, sums, lse, u_of_target);
  const RowGradient<kPlain, T> gradient(args, index, target, lse);
  for (int p = threadIdx.x; p < part.packs; p += kPartThreads) {
    const Pack<T> pack = held[p];
    float x[kSize];
#pragma unroll
    for (int j = 0; j < kSize; ++j) x[j] = to_float(pack.values[j]);
    store_vector(out + first + p * kSize, gradient.of(args, x, first + p * kSize));
  }
  if (single >= 0) out[single] = gradient.of_one(args, tail, single);
  cluster.barrier_wait();  // keeps this block's sums alive until all blocks have read them
#endif
}

template <class T>
void launch_per_warp(const Device& device, const T* logits, T* dlogits, const Rows& rows) {
  const auto kernel = rows.classes <= 4 * kWarp ? row_per_warp<T, 4> : row_per_warp<T, kMostPerLane>;
  const int blocks = blocks_for(rows.rows, kWarpRows);
  kernel<<<blocks, kWarpRows * kWarp, 0, stream_of(device)>>>(logits, dlogits, rows);
  check_launch("cross_entropy");
}

/// Number of blocks per row; 0 if a row is too long or unaligned, or if the device has no clusters.
template <class T>
int parts_for(const Device& device, const T* logits, const T* dlogits, const Rows& rows) {
  constexpr int kSize = Pack<T>::kSize;
  const bool packed = reinterpret_cast<uintptr_t>(logits) % 16 == 0 && rows.stride % kSize == 0 &&
                      reinterpret_cast<uintptr_t>(dlogits) % 16 == 0 && rows.out_stride % kSize == 0;
  if (!packed || !has_dependent_launch(device) || rows.rows > (int64_t{1} << 31) / kMostParts - 1) return 0;
  const int64_t bytes = rows.classes * static_cast<int64_t>(sizeof(T));
  int parts = 1;
  while (parts < kMostParts && parts * kPartBytes < bytes) parts *= 2;
  int most = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), "cross_entropy");
  return bytes <= parts * int64_t{most - 2048} ? parts : 0;  // minus the kernel's static shared memory
}

template <class T>
void launch_per_cluster(const Device& device, const T* logits, T* dlogits, const Rows& rows, int parts) {
  const int64_t packs = rows.classes / Pack<T>::kSize;
  const auto shared = static_cast<int>((packs + parts - 1) / parts * 16);
  const auto kernel = rows.plain() ? row_per_cluster<T, true> : row_per_cluster<T, false>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "cross_entropy");
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(parts);
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(rows.rows * parts));
  config.blockDim = dim3(kPartThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = stream_of(device);
  config.attrs = &cluster;
  config.numAttrs = 1;
  LAMINA_CUDA(cudaLaunchKernelEx(&config, kernel, logits, dlogits, rows), "cross_entropy");
}

}  // namespace

template <class T>
bool run_on_chip_rows(const Device& device, const T* logits, T* dlogits, const Rows& rows) {
  if (rows.classes <= kMostPerLane * kWarp) {
    launch_per_warp(device, logits, dlogits, rows);
    return true;
  }
  if (dlogits == nullptr || rows.losses == nullptr) return false;  // needs only one read of the logits anyway
  const int parts = parts_for(device, logits, dlogits, rows);
  if (parts == 0) return false;
  launch_per_cluster(device, logits, dlogits, rows, parts);
  return true;
}

template bool run_on_chip_rows(const Device&, const float*, float*, const Rows&);
template bool run_on_chip_rows(const Device&, const __nv_bfloat16*, __nv_bfloat16*, const Rows&);
template bool run_on_chip_rows(const Device&, const __half*, __half*, const Rows&);

}  // namespace lamina::ops::cuda::loss
