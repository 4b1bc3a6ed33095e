#include "lamina/comm/ordered_sum.h"

#include <algorithm>
#include <array>

#include "lamina/base/error.h"

namespace lamina::comm {
namespace {

// Number of elements that stay in the L1 and L2 caches while all levels of the tree are added.
constexpr int64_t kBlock = 4096;

template <class T>
void add_tree(std::span<void* const> parts, int64_t count) {
  const auto at = [&](size_t i, int64_t begin) { return static_cast<T*>(parts[i]) + begin; };
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    for (size_t stride = 1; stride < parts.size(); stride *= 2) {
      for (size_t i = 0; i + stride < parts.size(); i += 2 * stride) {
        T* const into = at(i, begin);
        const T* const from = at(i + stride, begin);
        for (int64_t k = 0; k < n; ++k) into[k] += from[k];
      }
    }
  }
}

/// Sums bf16 elements in f32 and rounds once.
void add_bf16(std::span<void* const> parts, int64_t count) {
  std::array<float, kBlock> sum;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    std::fill_n(sum.begin(), n, 0.0F);
    for (void* const part : parts) {
      const bf16* const from = static_cast<const bf16*>(part) + begin;
      for (int64_t k = 0; k < n; ++k) sum[static_cast<size_t>(k)] += static_cast<float>(from[k]);
    }
    bf16* const into = static_cast<bf16*>(parts[0]) + begin;
    for (int64_t k = 0; k < n; ++k) into[k] = bf16(sum[static_cast<size_t>(k)]);
  }
}

}  // namespace

void ordered_sum(std::span<void* const> parts, int64_t count, DType dtype) {
  switch (dtype) {
    case DType::f32: return add_tree<float>(parts, count);
    case DType::f64: return add_tree<double>(parts, count);
    case DType::i64: return add_tree<int64_t>(parts, count);
    case DType::bf16: return add_bf16(parts, count);
    default:
      throw Error(str("a sum over ranks of ", dtype, " elements; expected f32, f64, bf16 or i64, convert first"));
  }
}

}  // namespace lamina::comm
