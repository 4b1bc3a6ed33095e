#pragma once

// Parameters that the kernels for one token's attention with its output projection share.

#include <algorithm>
#include <bit>

#include "lamina/ops/attention/attention_sublayer_step_kernel.h"
#include "lamina/ops/attention/cuda/mma/mma.cuh"
#include "lamina/ops/linear/fused/row_step.cuh"
#include "lamina/tensor/cuda/prefetch.cuh"

namespace lamina::ops::cuda {

struct StepHeads {
  const uint4* out;       ///< [width, n_heads·d]; null if the weight is quantized
  const float* out_bias;  ///< [width], or null
  float* parts;           ///< [n_kv_heads, width]
  void* k;                ///< [n_kv_heads, capacity, d], or pages [pages, n_kv_heads, 2^page_bits, d]
  void* v;
  const int64_t* place;     ///< cache index of the token; null for a paged cache
  const int32_t* table;     ///< page table of the row; null if the cache is not paged
  const int32_t* length;    ///< length of the row including the token, for a paged cache
  const int64_t* position;  ///< position of the token; null: no rotation
  const float* cos;         ///< [table_rows, table_row]
  const float* sin;
  lamina::cuda::FaultSlot* faults;
  float scale;  ///< factor on the scores, times log2(e)
  int n_heads, n_kv_heads, capacity, d;
  int group;  ///< query heads per KV head
  int rotary_dim, table_row, table_rows;
  bool interleaved;
  int page_bits;

  /// Row index of a key in the cache, over all heads. A page that is not held counts as page 0; none of its keys is
  /// visible.
  __device__ int64_t key_index(int kv_head, int key) const {
    if (table == nullptr) return static_cast<int64_t>(kv_head) * capacity + key;
    const int64_t page = max(table[key >> page_bits], 0);
    return ((page * n_kv_heads + kv_head) << page_bits) + (key & ((1 << page_bits) - 1));
  }
  /// Cache index of the token. Before the wait for the previous kernel it is only a guess (load_relaxed_l2).
  __device__ int64_t given_place() const {
    if (table == nullptr) return lamina::cuda::load_relaxed_l2(place);
    int value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(length)));
    return value - 1;
  }
  __device__ int64_t given_position() const {
    return position == nullptr ? 0 : lamina::cuda::load_relaxed_l2(position);
  }
};

/// Fills the parameters, except `parts`.
inline StepHeads step_heads(const AttentionSublayerStep& args) {
  StepHeads p{};
  if (!args.weights.out.is_quantized()) p.out = packs_of(args.weights.out.plain);
  p.out_bias = lamina::cuda::device_data<float>(args.weights.out_bias);
  p.k = args.k_cache.raw();
  p.v = args.v_cache.raw();
  if (args.tables.defined()) {
    p.table = args.tables.data<int32_t>();
    p.length = args.lengths.data<int32_t>();
    p.page_bits = std::countr_zero(static_cast<uint64_t>(args.k_cache.dim(2)));
  } else {
    p.place = args.places.data<int64_t>();
  }
  p.faults = lamina::cuda::fault_slot(args.k_cache.device());
  p.scale = static_cast<float>(args.scale) * kLog2E;
  p.n_kv_heads = static_cast<int>(args.k_cache.dim(1));
  p.capacity = static_cast<int>(args.capacity());
  p.d = static_cast<int>(args.k_cache.dim(3));
  p.n_heads = static_cast<int>(args.weights.out.dim(1)) / p.d;
  p.group = p.n_heads / p.n_kv_heads;
  const StepRotation& rotation = args.rotation;
  if (!rotation.cos.defined()) return p;
  p.rotary_dim = static_cast<int>(rotation.rotary_dim);
  p.table_row = static_cast<int>(rotation.cos.dim(1));
  p.table_rows = static_cast<int>(std::min(rotation.cos.dim(0), kMostDevicePositions));
  p.interleaved = rotation.pairing == RotaryPairing::interleaved;
  p.cos = rotation.cos.data<float>();
  p.sin = rotation.sin.data<float>();
  p.position = rotation.positions.data<int64_t>();
  return p;
}

}  // namespace lamina::ops::cuda
