#pragma once

// Arguments and shared memory of the kernel that fuses the attention of one token with its output projection
// (output_step.cuh).

#include "lamina/ops/attention/decode/output_quantized.cuh"
#include "lamina/ops/attention/decode/step_heads.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/split_f32.cuh"

namespace lamina::ops::cuda::output_step {

using lamina::cuda::kSplitParts;
using lamina::cuda::shared_address;

constexpr int kHeads = 8;  // maximum number of queries per KV head
constexpr int kWarpKeys = 16;
constexpr int kTileKeys = kStepWarps * kWarpKeys;
// Floats per row of scores; avoids bank conflicts.
constexpr int kScorePitch = 20;
// Steps of 16 columns of the output projection.
constexpr int kStepsAtOnce = 4;
constexpr int kTileRows = 16;                                              // rows of the output projection per tile
constexpr int kMostTiles = kStepWarps * kHeads * kScorePitch / kTileRows;  // the sums reuse the memory of the scores

struct AttentionOutputParams : StepHeads {
  const float* projected;  ///< [(n_heads + 2 n_kv_heads)·d]
  int width;               ///< width of the residual stream
  int out_each;            ///< rows of the output projection per block
  int tiles;               ///< tiles of 16 rows per block
  int split_bits;          ///< a warp handles 1 / 2^split_bits of the columns of a tile,
  int steps_each;          ///< which are 16 · steps_each columns, or steps_each blocks of a quantized weight
  QuantizedOutput quantized;
  bool weights_just_written;  ///< the weights may just have been written, so wait before reading them
  bool starts_next_late;      ///< for a quantized weight, see quantized_block.cuh
};

/// The shared memory of a block, with kStages tiles of keys and values.
template <class T, int kD, int kStages, OutputWeight kWeight>
struct alignas(16) OutputShared {
  static constexpr bool kQuantized = kWeight != OutputWeight::bf16;
  static constexpr int kQueryPitch = kD + 8;  // both pitches avoid bank conflicts
  static constexpr int kValuePitch = kD + 4;

  T tiles[kStages][2][kTileKeys * kD];
  T queries[kSplitParts][kHeads][kQueryPitch];  ///< rotated and scaled
  T fresh[2][kD];                               ///< the new key and value
  float scores[kStepWarps][kHeads * kScorePitch];
  float values[kStepWarps][kHeads][kValuePitch];  ///< partial outputs of the warps
  float2 stats[kStepWarps][kHeads];               ///< max score, Σ weight
  __nv_bfloat16 result[kSplitParts][kHeads * kD + 8];
  uint64_t barrier;  ///< completes when the weights have arrived

  static size_t bytes(const AttentionOutputParams& p) {
    return sizeof(OutputShared) + static_cast<size_t>(p.tiles * tile_bytes(p));
  }
  /// Bytes of a tile, i.e. of 16 rows of the weights.
  __host__ __device__ static int tile_bytes(const AttentionOutputParams& p) {
    if constexpr (kQuantized) return QuantizedTileOf<kWeight>::bytes(p.quantized.head_blocks);
    return kTileRows * weight_pitch(p);
  }
  /// The quantized attention output, which uses the memory of `result`.
  __device__ unsigned char* numbers() { return reinterpret_cast<unsigned char*>(result); }
  __device__ auto* factors() {
    return reinterpret_cast<typename QuantizedTileOf<kWeight>::Factor*>(numbers() + kHeads * kD);
  }
  /// Bytes from one weight row to the next.
  __host__ __device__ static int weight_pitch(const AttentionOutputParams& p) { return p.group * kD * 2 + 16; }
  __device__ uint32_t weights() const { return shared_address(this + 1); }
  /// Offset of a 16-byte chunk in a tile. Chunks are XOR-swizzled by row, so that eight rows of a column have no bank
  /// conflicts.
  __device__ static int at(int row, int chunk) { return row * kD + (chunk ^ (row & 7)) * 8; }
};

}  // namespace lamina::ops::cuda::output_step
