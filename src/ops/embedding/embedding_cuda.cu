// Forward: a warp copies a row (a whole block does if there are few rows), with four loads per thread in flight.
//
// Backward sorts the positions by row, with a stable radix sort over as many bits as needed (one pass for a small
// vocabulary). The sorted positions are split into chunks of kChunk, regardless of rows, so that a frequent id is
// shared by many blocks. A block sums its chunk's rows of dy, some columns per thread. If all positions of an id lie
// within the chunk, the block writes the sum to the table. Otherwise it writes one of at most two partial sums per
// chunk: the first id may start in the previous chunk, the last may continue in the next. A final kernel zeroes empty
// rows and adds the partial sums of the others in order. dy is read once, the table is written once, and the order of
// additions depends only on the ids.
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "lamina/ops/embedding/embedding_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kThreads = 256;
constexpr int kChunk = 32;
constexpr int kInFlight = 8;  // rows of dy in flight
constexpr int kFinishRows = 8;

/// Arguments of gather_kernel. A table row has `units` units of 16 bytes or fewer.
struct Gather {
  const int64_t* ids;
  int64_t count, rows, units, first_row, vocab;
  int lanes;  ///< threads per row
  FaultSlot* faults;
};

/// y[i] = the table row of ids[i], or zeros if this table does not hold it. `Unit` is 16 bytes, or smaller if the rows
/// are not a multiple of 16 bytes.
template <class Unit>
__global__ void __launch_bounds__(kThreads) gather_kernel(const Unit* table, Unit* y, Gather args) {
  constexpr int kUnroll = 4;
  grid_dependency_wait();
  const int lanes = args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int rows_per_block = kThreads / lanes;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * rows_per_block + threadIdx.x / lanes; i < args.count;
       i += static_cast<int64_t>(gridDim.x) * rows_per_block) {
    const int64_t id = args.ids[i];
    if (lane == 0 && (id < 0 || id >= args.vocab)) report(args.faults, Fault::token_id, id);
    const int64_t row = id - args.first_row;
    const bool there = id >= 0 && id < args.vocab && row >= 0 && row < args.rows;
    const Unit* from = table + (there ? row : 0) * args.units;
    Unit* to = y + i * args.units;
    for (int64_t u = lane; u < args.units; u += lanes * kUnroll) {
      Unit held[kUnroll] = {};
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) {
        if (there && u + k * lanes < args.units) held[k] = from[u + k * lanes];
      }
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) {
        if (u + k * lanes < args.units) to[u + k * lanes] = held[k];
      }
    }
  }
}

template <class Unit>
void gather(const EmbeddingForward& args, int64_t row_bytes) {
  const int64_t count = args.ids.numel();
  constexpr int64_t kFew = 256;  // rows
  const int lanes = count <= kFew ? kThreads : kWarp;
  const Gather rows{.ids = args.ids.data<int64_t>(),
                    .count = count,
                    .rows = args.table.dim(0),
                    .units = row_bytes / static_cast<int64_t>(sizeof(Unit)),
                    .first_row = args.first_row,
                    .vocab = args.vocab,
                    .lanes = lanes,
                    .faults = fault_slot(args.y.device())};
  launch_dependent(gather_kernel<Unit>, dim3(static_cast<unsigned>(blocks_for(count, kThreads / lanes))),
                   dim3(kThreads), 0, args.y.device(), static_cast<const Unit*>(args.table.raw()),
                   static_cast<Unit*>(args.y.raw()), rows);
  check_launch("embedding");
}

/// keys[i] = the table row to which position i adds its gradient, or `rows` (past the end) if there is none.
/// order[i] = i.
__global__ void __launch_bounds__(kThreads)
    key_kernel(const int64_t* ids, int count, int64_t first_row, int64_t rows, int64_t padding, int* keys, int* order) {
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    const int64_t row = ids[i] - first_row;
    const bool counts = row >= 0 && row < rows && (padding < 0 || ids[i] != padding);
    keys[i] = static_cast<int>(counts ? row : rows);
    order[i] = i;
  }
}

/// starts[r] = number of keys below r, for r = 0 … rows, by binary search in the sorted keys.
__global__ void __launch_bounds__(kThreads) start_kernel(const int* keys, int count, int rows, int* starts) {
  const int r = blockIdx.x * kThreads + threadIdx.x;
  if (r > rows) return;
  int low = 0;
  int high = count;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (keys[middle] < r) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  starts[r] = low;
}

/// Arguments of the backward kernels.
struct Scatter {
  const int* keys;    ///< [count], ascending
  const int* order;   ///< [count], positions
  const int* starts;  ///< [rows + 1]
  float* partial;     ///< [chunks, 2, width]: sum of the id continued from an earlier chunk, of the last id
  void* dtable;
  bool wide;  ///< dtable is f32, else it has dy's type
  bool accumulate;
  int rows;
  int64_t width;
};

/// Floats per memory access when a thread handles kWidth neighbouring columns: at most four (16 bytes).
template <int kWidth>
inline constexpr int kFloats = kWidth < 4 ? kWidth : 4;

template <int kWidth>
__device__ inline void put_floats(float* to, const float (&sums)[kWidth], bool accumulate) {
  using S = Vec<float, kFloats<kWidth>>;
#pragma unroll
  for (int first = 0; first < kWidth; first += kFloats<kWidth>) {
    S* at = reinterpret_cast<S*>(to + first);
    S values = accumulate ? *at : S{};
#pragma unroll
    for (int j = 0; j < kFloats<kWidth>; ++j) values.values[j] += sums[first + j];
    *at = values;
  }
}

/// dtable[at …] = sums, or += if args.accumulate.
template <class T, int kWidth>
__device__ inline void put(const Scatter& args, int64_t at, const float (&sums)[kWidth]) {
  if (args.wide) {
    put_floats(static_cast<float*>(args.dtable) + at, sums, args.accumulate);
    return;
  }
  using S = Vec<T, kWidth>;
  S* to = reinterpret_cast<S*>(static_cast<T*>(args.dtable) + at);
  S values{};
  if (args.accumulate) values = *to;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    values.values[j] = from_float<T>(args.accumulate ? to_float(values.values[j]) + sums[j] : sums[j]);
  }
  *to = values;
}

/// Stores the sum of one id over the chunk [begin, end) of the sorted positions: to the table if no other chunk has
/// positions of this id, else to the chunk's partial sums.
template <class T, int kWidth>
__device__ inline void flush(const Scatter& args, int key, int begin, int end, int64_t column, float (&sums)[kWidth]) {
  const bool continued = args.starts[key] < begin;
  const bool continues = args.starts[key + 1] > end;
  if (!continued && !continues) {
    put<T>(args, key * args.width + column, sums);
  } else {
    float* to = args.partial + (static_cast<int64_t>(begin / kChunk) * 2 + (continued ? 0 : 1)) * args.width + column;
    put_floats(to, sums, false);
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sums[j] = 0.0F;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) scatter_kernel(const T* dy, const __grid_constant__ Scatter args) {
  using S = Vec<T, kWidth>;
  __shared__ int keys[kChunk];
  __shared__ int order[kChunk];
  const int begin = blockIdx.x * kChunk;
  const int total = args.starts[args.rows];  // positions that are not ignored
  const int end = min(begin + kChunk, total);
  if (begin >= end) return;  // uniform over the block
  for (int i = threadIdx.x; i < end - begin; i += blockDim.x) {
    keys[i] = args.keys[begin + i];
    order[i] = args.order[begin + i];
  }
  __syncthreads();
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kWidth;
  if (column >= args.width) return;
  float sums[kWidth] = {};
  const int n = end - begin;
  for (int first = 0; first < n; first += kInFlight) {
    S held[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (first + k < n) held[k] = *reinterpret_cast<const S*>(dy + order[first + k] * args.width + column);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int i = first + k;
      if (i >= n) continue;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] += to_float(held[k].values[j]);
      if (i + 1 == n || keys[i + 1] != keys[i]) flush<T>(args, keys[i], begin, end, column, sums);
    }
  }
}

/// The chunks that contain a row's positions.
struct RowChunks {
  bool empty;
  int first, last;
  __device__ RowChunks(const Scatter& args, int row) {
    const int begin = args.starts[row];
    const int end = args.starts[row + 1];
    empty = begin == end;
    first = begin / kChunk;
    last = empty ? first : (end - 1) / kChunk;
  }
  /// Offset of a chunk's partial sum.
  __device__ int64_t at(const Scatter& args, int chunk) const {
    return (static_cast<int64_t>(chunk) * 2 + (chunk == first ? 1 : 0)) * args.width;
  }
};

/// Adds up the partial sums of one row. The block is 32 columns wide; each of its eight thread rows takes every eighth
/// chunk. Starts at column `begin` and advances by `step`.
template <class T>
__device__ inline void join_chunks(const Scatter& args, int row, const RowChunks& chunks, int64_t begin, int64_t step,
                                   float (&fold)[kFinishRows][kWarp]) {
  const int lane = threadIdx.x % kWarp;
  const int part = threadIdx.x / kWarp;
  for (int64_t columns = begin; columns < args.width; columns += step) {
    const int64_t column = columns + lane;
    float sum = 0.0F;
    if (column < args.width) {
#pragma unroll 4
      for (int chunk = chunks.first + part; chunk <= chunks.last; chunk += kFinishRows) {
        sum += args.partial[chunks.at(args, chunk) + column];
      }
    }
    fold[part][lane] = sum;
    __syncthreads();
    if (part == 0 && column < args.width) {
      float whole[1] = {0.0F};
      for (int k = 0; k < kFinishRows; ++k) whole[0] += fold[k][lane];
      put<T>(args, row * args.width + column, whole);
    }
    __syncthreads();
  }
}

/// Finishes the rows that scatter_kernel did not write: empty rows become zero, rows that span several chunks get the
/// sum of their partial sums. Blocks with the same blockIdx.x share a row's columns.
template <class T>
__global__ void __launch_bounds__(kWarp* kFinishRows) finish_kernel(const __grid_constant__ Scatter args) {
  __shared__ float fold[kFinishRows][kWarp];
  for (int row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const RowChunks chunks(args, row);
    if (chunks.empty) {
      if (args.accumulate) continue;
      for (int64_t i = blockIdx.y * blockDim.x + threadIdx.x; i < args.width; i += gridDim.y * blockDim.x) {
        const float zero[1] = {0.0F};
        put<T>(args, row * args.width + i, zero);
      }
    } else if (chunks.first != chunks.last) {  // otherwise the chunk's block has written it
      join_chunks<T>(args, row, chunks, blockIdx.y * kWarp, gridDim.y * kWarp, fold);
    }
  }
}

/// finish_kernel for tables with many rows, most of which are empty or finished. A warp takes a row, kWidth columns per
/// lane. Rows that span many chunks are summed by the whole block.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarp* kFinishRows) finish_many_kernel(const __grid_constant__ Scatter args) {
  constexpr int kFew = 8;  // chunks that a warp sums by itself
  __shared__ float fold[kFinishRows][kWarp];
  const int lane = threadIdx.x % kWarp;
  const int first_row = blockIdx.x * kFinishRows;
  const int row = first_row + static_cast<int>(threadIdx.x) / kWarp;
  if (row < args.rows) {
    const RowChunks chunks(args, row);
    const int count = chunks.last - chunks.first + 1;
    const bool mine = chunks.empty ? !args.accumulate : count > 1 && count <= kFew;
    for (int64_t column = lane * kWidth; mine && column < args.width; column += kWarp * kWidth) {
      float sums[kWidth] = {};
      for (int chunk = chunks.first; !chunks.empty && chunk <= chunks.last; ++chunk) {
        using S = Vec<float, kWidth>;
        const S more = *reinterpret_cast<const S*>(args.partial + chunks.at(args, chunk) + column);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sums[j] += more.values[j];
      }
      put<T>(args, row * args.width + column, sums);
    }
  }
  for (int other = first_row; other < min(first_row + kFinishRows, args.rows); ++other) {
    const RowChunks chunks(args, other);
    if (chunks.last - chunks.first >= kFew) join_chunks<T>(args, other, chunks, 0, kWarp, fold);
  }
}

struct Sorted {
  Tensor keys;
  Tensor order;
  Tensor starts;
};

Sorted sort_by_row(const EmbeddingBackward& args) {
  const Device& device = args.dy.device();
  const cudaStream_t stream = stream_of(device);
  const int count = static_cast<int>(args.ids.numel());
  const int rows = static_cast<int>(args.dtable.dim(0));
  const auto room = [&](int64_t n) { return Tensor::empty({n}, DType::i32, device); };
  Sorted sorted{room(count), room(count), room(rows + 1)};
  const Tensor keys = room(count);
  const Tensor order = room(count);
  if (count > 0) {
    key_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(args.ids.data<int64_t>(), count, args.first_row,
                                                                     rows, args.padding, keys.data<int32_t>(),
                                                                     order.data<int32_t>());
    check_launch("embedding");
    const int bits = std::bit_width(static_cast<unsigned>(rows));
    const auto sort = [&](void* space, size_t& bytes) {
      LAMINA_CUDA(
          cub::DeviceRadixSort::SortPairs(space, bytes, keys.data<int32_t>(), sorted.keys.data<int32_t>(),
                                          order.data<int32_t>(), sorted.order.data<int32_t>(), count, 0, bits, stream),
          "embedding");
    };
    size_t bytes = 0;
    sort(nullptr, bytes);
    const Tensor space = Tensor::empty({static_cast<int64_t>(std::max<size_t>(bytes, 1))}, DType::u8, device);
    sort(space.raw(), bytes);
  }
  start_kernel<<<blocks_for(rows + 1, kThreads), kThreads, 0, stream>>>(sorted.keys.data<int32_t>(), count, rows,
                                                                        sorted.starts.data<int32_t>());
  check_launch("embedding");
  return sorted;
}

template <class E>
void scatter(const EmbeddingBackward& args) {
  using T = DeviceType<E>;
  constexpr int kSize = Pack<T>::kSize;
  const Device& device = args.dy.device();
  const cudaStream_t stream = stream_of(device);
  const Sorted sorted = sort_by_row(args);
  const int64_t chunks = (args.ids.numel() + kChunk - 1) / kChunk;
  const Tensor partial = Tensor::empty({chunks, 2, args.dtable.dim(1)}, DType::f32, device);
  Scatter to{};
  to.keys = sorted.keys.data<int32_t>();
  to.order = sorted.order.data<int32_t>();
  to.starts = sorted.starts.data<int32_t>();
  to.partial = partial.data<float>();
  to.dtable = args.dtable.raw();
  to.wide = args.dtable.dtype() == DType::f32;
  to.accumulate = args.accumulate;
  to.rows = static_cast<int>(args.dtable.dim(0));
  to.width = args.dtable.dim(1);
  const T* dy = device_data<E>(args.dy);
  if (chunks > 0) {
    const bool packed = is_pack_aligned(dy, to.width) && reinterpret_cast<uintptr_t>(to.dtable) % 16 == 0;
    const int64_t units = to.width / (packed ? kSize : 1);
    const int threads = static_cast<int>(std::min<int64_t>(kThreads, (units + kWarp - 1) / kWarp * kWarp));
    const dim3 blocks(static_cast<unsigned>(chunks), static_cast<unsigned>((units + threads - 1) / threads));
    if (packed) {
      scatter_kernel<T, kSize><<<blocks, threads, 0, stream>>>(dy, to);
    } else {
      scatter_kernel<T, 1><<<blocks, threads, 0, stream>>>(dy, to);
    }
    check_launch("embedding");
  }
  if (to.rows < 4096) {  // most rows span many chunks, so blocks share a row's columns
    const auto shares = static_cast<unsigned>(std::min<int64_t>((to.width + kWarp - 1) / kWarp, 1024));
    finish_kernel<T><<<dim3(static_cast<unsigned>(to.rows), shares), kWarp * kFinishRows, 0, stream>>>(to);
  } else {
    const bool fours = to.width % 4 == 0 && reinterpret_cast<uintptr_t>(to.dtable) % 16 == 0;
    const auto kernel = fours ? finish_many_kernel<T, 4> : finish_many_kernel<T, 1>;
    const auto blocks = static_cast<unsigned>((to.rows + kFinishRows - 1) / kFinishRows);
    kernel<<<blocks, kWarp * kFinishRows, 0, stream>>>(to);
  }
  check_launch("embedding");
}

}  // namespace

void embedding_forward(const EmbeddingForward& args) {
  if (args.y.numel() == 0) return;
  const int64_t bytes = args.table.dim(1) * static_cast<int64_t>(size_of(args.table.dtype()));
  const auto fits = [&](int64_t size) {
    return bytes % size == 0 && reinterpret_cast<uintptr_t>(args.table.raw()) % static_cast<uintptr_t>(size) == 0 &&
           reinterpret_cast<uintptr_t>(args.y.raw()) % static_cast<uintptr_t>(size) == 0;
  };
  if (fits(sizeof(uint4))) {
    gather<uint4>(args, bytes);
  } else if (fits(sizeof(uint32_t))) {
    gather<uint32_t>(args, bytes);
  } else {
    gather<uint16_t>(args, bytes);
  }
}

void embedding_backward(const EmbeddingBackward& args) {
  if (args.dtable.numel() == 0) return;
  constexpr int64_t kMost = int64_t{1} << 30;
  LAMINA_CHECK(args.ids.numel() < kMost && args.dtable.dim(0) < kMost, "embedding: ", args.ids.numel(), " ids and ",
               args.dtable.dim(0), " rows on a cuda device; expected fewer than ", kMost, " of each");
  visit_floating("embedding", args.dy.dtype(), [&](auto tag) { scatter<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
