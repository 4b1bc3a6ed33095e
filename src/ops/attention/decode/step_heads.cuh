#pragma once

// Parameters shared by the kernels that fuse one token's attention with its output projection.

#include <algorithm>

#include "lamina/ops/attention/attention_sublayer_step_kernel.h"
#include "lamina/ops/attention/cuda/mma/mma.cuh"
#include "lamina/ops/linear/fused/row_step.cuh"

namespace lamina::ops::cuda {

struct StepHeads {
  const uint4* out;       ///< [width, n_heads·d]
  const float* out_bias;  ///< or null
  float* parts;           ///< [n_kv_heads, width]
  void* k;                ///< [n_kv_heads, capacity, d]
  void* v;
  const int64_t* place;
  const int64_t* position;
  const float* cos;  ///< [table_rows, table_row]
  const float* sin;
  lamina::cuda::FaultSlot* faults;
  float scale;  ///< of scores, times log2(e)
  int n_heads, n_kv_heads, capacity, d;
  int group;  ///< query heads per KV head
  int rotary_dim, table_row, table_rows;
  bool interleaved;
};

/// Leaves `parts` unset.
inline StepHeads step_heads(const AttentionSublayerStep& args) {
  StepHeads p{};
  p.out = packs_of(args.weights.out);
  p.out_bias = lamina::cuda::device_data<float>(args.weights.out_bias);
  p.k = args.k_cache.raw();
  p.v = args.v_cache.raw();
  p.place = args.places.data<int64_t>();
  p.position = p.place;
  p.faults = lamina::cuda::fault_slot(args.k_cache.device());
  p.scale = static_cast<float>(args.scale) * kLog2E;
  p.n_kv_heads = static_cast<int>(args.k_cache.dim(1));
  p.capacity = static_cast<int>(args.k_cache.dim(2));
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
