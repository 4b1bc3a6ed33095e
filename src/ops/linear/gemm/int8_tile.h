#pragma once

#include <cstdint>

#include "lamina/ops/linear/gemm/bf16_tile.h"

namespace lamina::ops {

/// True if this CPU multiplies tiles of 8-bit integers (AMX-TILE and AMX-INT8) and the OS lets the process use them.
bool has_int8_tiles();

/// Packed operands: 16 rows of x and 16 rows of a quantized weight, in blocks of 32 along k:
///   x         [blocks, 16, 32] signed        x_scales  [blocks, 16]
///   w         [blocks, 8, 16, 4] signed      w_scales  [blocks, 16]     (k / 4, row, k % 4)
struct Int8Panels {
  const int8_t* x;
  const float* x_scales;
  const int8_t* w;
  const float* w_scales;
  int64_t blocks;
};

/// A microkernel y [16, 16] = beta · y + Σ_block (w_scale · x_scale) · Σ x · w, with beta 0 or 1. The sums of a block
/// are exact integers. They are added in order with one FMA each, as in the kernel for few rows. Must run inside a
/// TileScope with TileShape::half_depth.
using Int8TiledFn = void (*)(const Int8Panels& panels, float beta, float* y);
Int8TiledFn int8_tiled(TileUnit unit);

}  // namespace lamina::ops
