#pragma once

// How the copy engine of compute capability 9 and above finds boxes of a tensor in memory (cp.async.bulk.tensor).

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

namespace lamina::cuda {

/// A tensor of a half type, its innermost extent first, taken in boxes of 64 elements a row whose rows of 128 bytes are
/// swizzled as the matrix units read them. What lies outside the extents is read as zero.
template <size_t kRank>
struct HalfBoxes {
  const void* data;                    ///< at an address of whole 16 bytes
  std::array<int64_t, kRank> extents;  ///< the innermost a multiple of 8
  std::array<int, kRank> box;          ///< the innermost 64, none above 256
  bool brain;                          ///< bf16 rather than f16
  /// From one index of an extent to the next, in elements, the innermost's not counted; 0: dense.
  std::array<int64_t, kRank> strides = {};
};

/// False where the driver has no such thing or does not take it.
template <size_t kRank>
bool encode_tensor_map(CUtensorMap& map, const HalfBoxes<kRank>& boxes) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  if (encode == nullptr) return false;
  std::array<cuuint64_t, kRank> extents{};
  std::array<cuuint64_t, kRank> strides{};  // of the second extent and following, in bytes
  std::array<cuuint32_t, kRank> box{};
  std::array<cuuint32_t, kRank> every{};
  cuuint64_t bytes = 2;
  for (size_t i = 0; i < kRank; ++i) {
    extents[i] = static_cast<cuuint64_t>(boxes.extents[i]);
    bytes *= extents[i];
    strides[i] = i + 1 < kRank && boxes.strides[i + 1] != 0 ? static_cast<cuuint64_t>(boxes.strides[i + 1]) * 2 : bytes;
    box[i] = static_cast<cuuint32_t>(boxes.box[i]);
    every[i] = 1;
  }
  return encode(&map, boxes.brain ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, kRank,
                const_cast<void*>(boxes.data), extents.data(), strides.data(), box.data(), every.data(),
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace lamina::cuda
