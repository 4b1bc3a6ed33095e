#include "lamina/comm/ordered_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "lamina/base/error.h"

namespace lamina::comm {
namespace {

// Number of elements that stay in the L1 and L2 caches while all levels of the tree are added.
constexpr int64_t kBlock = 4096;

/// The sum of parts [first, last) for `count` elements from `begin` on: a part itself, or `into`. The first two blocks
/// of `scratch` hold the sums of both halves, later ones those of their halves.
template <class T>
const T* add_tree(std::span<const void* const> parts, size_t first, size_t last, int64_t begin, int64_t count, T* into,
                  T* scratch) {
  if (last - first == 1) return static_cast<const T*>(parts[first]) + begin;
  const size_t middle = first + std::bit_floor(last - first - 1);
  T* const deeper = scratch + 2 * kBlock;
  const T* const left = add_tree(parts, first, middle, begin, count, scratch, deeper);
  const T* const right = add_tree(parts, middle, last, begin, count, scratch + kBlock, deeper);
  for (int64_t k = 0; k < count; ++k) into[k] = left[k] + right[k];
  return into;
}

template <class T>
void add(std::span<const void* const> parts, T* sum, int64_t count) {
  std::vector<T> scratch(2 * kBlock * static_cast<size_t>(std::bit_width(parts.size())));
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* const result = add_tree(parts, 0, parts.size(), begin, n, sum + begin, scratch.data());
    if (result != sum + begin) std::copy_n(result, n, sum + begin);  // a single part
  }
}

/// Sums bf16 elements in f32 and rounds once.
void add_bf16(std::span<const void* const> parts, bf16* result, int64_t count) {
  std::array<float, kBlock> sum;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    std::fill_n(sum.begin(), n, 0.0F);
    for (const void* const part : parts) {
      const bf16* const from = static_cast<const bf16*>(part) + begin;
      for (int64_t k = 0; k < n; ++k) sum[static_cast<size_t>(k)] += static_cast<float>(from[k]);
    }
    bf16* const into = result + begin;
    for (int64_t k = 0; k < n; ++k) into[k] = bf16(sum[static_cast<size_t>(k)]);
  }
}

}  // namespace

void ordered_sum(std::span<const void* const> parts, void* sum, int64_t count, DType dtype) {
  switch (dtype) {
    case DType::f32: return add(parts, static_cast<float*>(sum), count);
    case DType::f64: return add(parts, static_cast<double*>(sum), count);
    case DType::i64: return add(parts, static_cast<int64_t*>(sum), count);
    case DType::bf16: return add_bf16(parts, static_cast<bf16*>(sum), count);
    default:
      throw Error(str("a sum over ranks of ", dtype, " elements; expected f32, f64, bf16 or i64, convert first"));
  }
}

}  // namespace lamina::comm
