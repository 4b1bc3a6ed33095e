// One pass. A thread takes one pack (16 bytes), generates four random words per four elements (about forty
// multiplications, hidden by memory latency) and writes the pack. Elements outside whole packs generate their own word.
#include "lamina/ops/dropout/dropout_kernel.h"
#include "lamina/ops/elementwise/elements.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    dropout_kernel(const T* x, T* y, int64_t n, int64_t packs, uint32_t threshold, float scale, RandomKey key,
                   int64_t first,                   const unsigned long long* stream_offset) {
  key.stream += *stream_offset;
  constexpr int kSize = Pack<T>::kSize;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kElementThreads;
  for (int64_t at = thread; at < packs; at += step) {
    Pack<T> pack = load_pack(x + at * kSize);
#pragma unroll
    for (int j = 0; j < kSize; j += 4) {
      const auto words = philox(key, static_cast<uint64_t>(first + at * kSize + j) / 4);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float value = words[k] >= threshold ? to_float(pack.values[j + k]) * scale : 0.0F;
        pack.values[j + k] = from_float<T>(value);
      }
    }
    store_pack(y + at * kSize, pack);
  }
  for (int64_t i = packs * kSize + thread; i < n; i += step) {
    const bool kept = philox_word(key, static_cast<uint64_t>(first + i)) >= threshold;
    y[i] = from_float<T>(kept ? to_float(x[i]) * scale : 0.0F);
  }
}

}  // namespace

void dropout_apply(const Tensor& x_in, uint32_t threshold, double scale, const RandomKey& key, int64_t first,
                   const Tensor& y_in) {
  const int64_t n = y_in.numel();
  if (n == 0) return;
  visit_floating("dropout", x_in.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    const T* x = device_data<E>(x_in);
    T* y = device_data<E>(y_in);
    const int64_t packs = first % 4 == 0 ? whole_packs<T>(n, x, y) : 0;  // a pack's words start at a multiple of four
    const int blocks = element_blocks(n, packs, kElementThreads);
    dropout_kernel<<<blocks, kElementThreads, 0, stream_of(y_in.device())>>>(
        x, y, n, packs, threshold, static_cast<float>(scale), key, first, random_offset(y_in.device()));
    check_launch("dropout");
  });
}

}  // namespace lamina::ops::cuda
