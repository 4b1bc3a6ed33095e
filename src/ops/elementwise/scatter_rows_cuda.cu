// A block copies a part of a row (grid.y is the row) in units of 16 bytes, or of fewer if rows are not a multiple of
// 16.
#include <algorithm>

#include "lamina/ops/elementwise/scatter_rows_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kScatterThreads = 256;

template <class Unit>
__global__ void __launch_bounds__(kScatterThreads) scatter_kernel(Unit* table, const int64_t* indices, const Unit* rows,
                                                                  int64_t slots, int64_t units, FaultSlot* faults) {
  grid_dependency_wait();
  const int64_t row = blockIdx.y;
  const int64_t slot = indices[row];
  if (slot < 0 || slot >= slots) {
    if (threadIdx.x == 0 && blockIdx.x == 0) report(faults, Fault::cache_place, slot);
    return;
  }
  for (int64_t u = int64_t{blockIdx.x} * kScatterThreads + threadIdx.x; u < units;
       u += int64_t{gridDim.x} * kScatterThreads) {
    table[slot * units + u] = rows[row * units + u];
  }
}

template <class Unit>
void scatter(const ScatterRows& args, int64_t row_bytes) {
  constexpr int64_t kMostColumns = 64;
  constexpr int64_t kMostRows = 65535;  // gridDim.y is at most 65535
  const int64_t units = row_bytes / static_cast<int64_t>(sizeof(Unit));
  const int64_t columns = std::min<int64_t>(blocks_for(units, kScatterThreads), kMostColumns);
  const int64_t count = args.indices.dim(0);
  for (int64_t first = 0; first < count; first += kMostRows) {
    const dim3 blocks(static_cast<unsigned>(columns), static_cast<unsigned>(std::min(count - first, kMostRows)));
    launch_dependent(scatter_kernel<Unit>, blocks, dim3(kScatterThreads), 0, args.table.device(),
                     static_cast<Unit*>(args.table.raw()),
                     static_cast<const int64_t*>(args.indices.data<int64_t>() + first),
                     static_cast<const Unit*>(args.rows.raw()) + first * units, args.table.dim(0), units,
                     fault_slot(args.table.device()));
    check_launch("scatter_rows_");
  }
}

}  // namespace

void scatter_rows_(const ScatterRows& args) {
  if (args.rows.numel() == 0) return;
  const int64_t row_bytes = args.rows.nbytes() / args.indices.dim(0);
  const auto at = reinterpret_cast<uintptr_t>(args.table.raw()) | reinterpret_cast<uintptr_t>(args.rows.raw()) |
                  static_cast<uintptr_t>(row_bytes);
  if (at % 16 == 0) return scatter<uint4>(args, row_bytes);
  if (at % 4 == 0) return scatter<uint32_t>(args, row_bytes);
  scatter<uint8_t>(args, row_bytes);
}

}  // namespace lamina::ops::cuda
