#pragma once

// Multi-tensor kernels: one launch processes many tensors. Their pointers and sizes are passed as kernel parameters, up
// to 4 KB per launch, so nothing is copied to the device and a captured CUDA graph keeps them. Each tensor is split
// into chunks, one per block; a block finds its tensor by binary search. Elements of all dtypes are converted to f32,
// four at a time if aligned, so that a warp's f32 accesses are contiguous. Dtypes are uniform branches, so one kernel
// serves every mix.

#include <vector>

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda {

constexpr int kSlotThreads = 256;
constexpr int kSlotWidth = 4;  // elements per thread and access

template <class T>
using Four = lamina::cuda::Vec<T, kSlotWidth>;

/// The tensors of one launch. Entry describes one of them; it has `int64_t n`, the number of elements, and `bool
/// packed`, true if all its addresses are 16-byte aligned.
template <class Entry>
struct Batch {
  static constexpr int kMost = (4096 - 128) / (sizeof(Entry) + sizeof(int));
  int count = 0;
  int starts[kMost + 1] = {};  ///< first chunk of each entry, and the end
  Entry entries[kMost];
};

/// Calls launch(batch, first) for batches that cover all entries; `first` is the number of chunks in earlier batches.
/// Skips empty entries.
template <class Entry, class F>
void each_batch(const std::vector<Entry>& entries, int64_t chunk, const F& launch) {
  Batch<Entry> batch;
  int64_t before = 0;
  const auto send = [&] {
    if (batch.count == 0) return;
    launch(batch, before);
    before += batch.starts[batch.count];
    batch.count = 0;
  };
  for (const Entry& entry : entries) {
    const int64_t chunks = (entry.n + chunk - 1) / chunk;
    if (chunks == 0) continue;
    LAMINA_CHECK(chunks < (int64_t{1} << 30), "a tensor of ", entry.n, " elements is too large for one update");
    const bool full = batch.count == Batch<Entry>::kMost;
    if (full || batch.starts[batch.count] + chunks > (int64_t{1} << 30)) send();
    batch.entries[batch.count] = entry;
    batch.starts[batch.count + 1] = batch.starts[batch.count] + static_cast<int>(chunks);
    ++batch.count;
  }
  send();
}

/// Throws for f64 slots, which only the CPU supports.
inline void check_slot_type(const char* op, DType type) {
  lamina::cuda::visit_floating(op, type, [](auto) {});
}

inline bool is_packed(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0) return false;
  }
  return true;
}

template <class T, int kWidth>
__device__ inline void load_values(const void* from, int64_t i, float (&to)[kWidth]) {
  const T* values = static_cast<const T*>(from) + i;
  if constexpr (kWidth == kSlotWidth) {
    const Four<T> four = *reinterpret_cast<const Four<T>*>(values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) to[j] = lamina::cuda::to_float(four.values[j]);
  } else {
    to[0] = lamina::cuda::to_float(*values);
  }
}

template <class T, int kWidth>
__device__ inline void store_values(const float (&from)[kWidth], void* to, int64_t i) {
  T* values = static_cast<T*>(to) + i;
  if constexpr (kWidth == kSlotWidth) {
    Four<T> four;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) four.values[j] = lamina::cuda::from_float<T>(from[j]);
    *reinterpret_cast<Four<T>*>(values) = four;
  } else {
    *values = lamina::cuda::from_float<T>(from[0]);
  }
}

template <int kWidth>
__device__ inline void load_as(const void* from, DType type, int64_t i, float (&to)[kWidth]) {
  if (type == DType::f32) return load_values<float>(from, i, to);
  if (type == DType::bf16) return load_values<__nv_bfloat16>(from, i, to);
  load_values<__half>(from, i, to);
}

template <int kWidth>
__device__ inline void store_as(const float (&from)[kWidth], void* to, DType type, int64_t i) {
  if (type == DType::f32) return store_values<float>(from, to, i);
  if (type == DType::bf16) return store_values<__nv_bfloat16>(from, to, i);
  store_values<__half>(from, to, i);
}

/// The index of the entry to which this block's chunk belongs.
template <class Entry>
__device__ inline int entry_of(const Batch<Entry>& batch) {
  int low = 0;
  int high = batch.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (batch.starts[middle] <= static_cast<int>(blockIdx.x)) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Calls four(i) for groups of four elements and one(i) for single elements of this block's chunk. `chunk` is a
/// multiple of four.
template <class Entry, class FourAt, class One>
__device__ inline void for_each_in_chunk(const Entry& entry, int in_entry, int chunk, const FourAt& four,
                                         const One& one) {
  const int64_t begin = static_cast<int64_t>(in_entry) * chunk;
  const int64_t end = min(begin + chunk, entry.n);
  const int64_t whole = entry.packed ? begin + (end - begin) / kSlotWidth * kSlotWidth : begin;
  for (int64_t i = begin + threadIdx.x * kSlotWidth; i < whole; i += kSlotThreads * kSlotWidth) four(i);
  for (int64_t i = whole + threadIdx.x; i < end; i += kSlotThreads) one(i);
}

}  // namespace lamina::ops::cuda
