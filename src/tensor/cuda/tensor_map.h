#pragma once

// TMA descriptors (CUtensorMap): they tell cp.async.bulk.tensor how to find boxes of a tensor (compute capability 9.0
// and above).

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

namespace lamina::cuda {

/// A tensor of a 16-bit type, innermost extent first. It is accessed in boxes whose rows have 64 elements (128 bytes),
/// in the 128-byte swizzle that wgmma reads. Elements outside the extents are read as zeros.
template <size_t kRank>
struct TmaTensor16 {
  const void* data;                    ///< 16-byte aligned
  std::array<int64_t, kRank> extents;  ///< the innermost is a multiple of 8
  std::array<int, kRank> box;          ///< the innermost is 64, none is above 256
  bool brain;                          ///< bf16 instead of f16
  /// Strides in elements. The innermost one is ignored (always 1). All 0: contiguous.
  std::array<int64_t, kRank> strides = {};
};

/// Returns false if the driver does not support TMA or rejects the descriptor.
template <size_t kRank>
bool encode_tensor_map(CUtensorMap& map, const TmaTensor16<kRank>& boxes) {
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
  std::array<cuuint64_t, kRank> strides{};  // strides of all extents but the innermost, in bytes
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
