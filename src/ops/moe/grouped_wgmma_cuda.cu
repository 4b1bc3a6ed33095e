// Launches the kernels of grouped_wgmma.cuh. Compiled for sm_90a too, the only target with wgmma.
#include "lamina/ops/moe/grouped_wgmma.cuh"
#include "lamina/tensor/cuda/tensor_map.h"

namespace lamina::ops::cuda::wgmma {
namespace {

constexpr const char* kOp = "grouped_linear";

bool fits(const void* pointer, int64_t width) {
  return width % 8 == 0 && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

/// Encodes the TMA descriptors of both operands; returns false if that is not possible.
template <class T>
bool map_operands(Form form, const T* left, const T* right, const Product& p, CUtensorMap& of_left,
                  CUtensorMap& of_right) {
  constexpr bool kBrain = std::is_same_v<T, __nv_bfloat16>;
  constexpr int64_t kMost = int64_t{1} << 31;  // TMA coordinates are 32-bit
  if (p.slots >= kMost || p.depth >= kMost || p.height >= kMost || p.width >= kMost) return false;
  if (!fits(p.result, p.width)) return false;
  if (form == Form::weights) {
    return fits(left, p.height) && fits(right, p.width) &&
           encode_tensor_map<2>(of_left, {left, {p.height, p.slots}, {64, 64}, kBrain}) &&
           encode_tensor_map<2>(of_right, {right, {p.width, p.slots}, {64, 64}, kBrain});
  }
  if (!fits(left, p.depth) || !fits(right, p.width)) return false;
  if (!encode_tensor_map<2>(of_left, {left, {p.depth, p.slots}, {64, kHeight}, kBrain})) return false;
  return form == Form::rows
             ? encode_tensor_map<3>(of_right, {right, {p.depth, p.width, p.experts}, {64, kWidth, 1}, kBrain})
             : encode_tensor_map<3>(of_right, {right, {p.width, p.depth, p.experts}, {64, 64, 1}, kBrain});
}

template <class T>
auto* kernel_of(Form form) {
  switch (form) {
    case Form::rows: return grouped_product<T, Form::rows>;
    case Form::gradient: return grouped_product<T, Form::gradient>;
    case Form::weights: break;
  }
  return grouped_product<T, Form::weights>;
}

}  // namespace

template <class T>
bool multiply(const Device& device, Form form, const T* left, const T* right, const Product& product) {
  CUtensorMap of_left;
  CUtensorMap of_right;
  if (!has_wgmma(device, kOp) || !map_operands(form, left, right, product, of_left, of_right)) return false;
  auto* kernel = kernel_of<T>(form);
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), kOp);
  const int64_t columns = (product.width + kWidth - 1) / kWidth;
  const int64_t most = form == Form::weights ? product.experts * ((product.height + kHeight - 1) / kHeight) * columns
                                             : row_tiles(product.slots, product.experts, kHeight) * columns;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most, sm_count(device)));
  kernel<<<blocks, kBlockSize, kSharedBytes, stream_of(device)>>>(of_left, of_right, product);
  check_launch(kOp);
  return true;
}

template bool multiply(const Device&, Form, const __nv_bfloat16*, const __nv_bfloat16*, const Product&);
template bool multiply(const Device&, Form, const __half*, const __half*, const Product&);

}  // namespace lamina::ops::cuda::wgmma
