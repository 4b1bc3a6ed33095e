// Decoding over a KV cache that exceeds the CPU caches, against reading as many bytes: head layouts and cache types.
#include "lamina/ops/attention/attention_decode.h"

#include "support/products.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

/// Reads a block once with all threads.
void read_all(const Tensor& block) {
  constexpr int64_t kPart = 1 << 18;
  const int64_t parts = block.numel() / kPart;
  std::vector<float> sums(static_cast<size_t>(parts));
  block.device().threads().tasks(parts, [&](int64_t part) {
    const float* from = block.data<float>() + part * kPart;
    float lanes[64] = {};
    for (int64_t i = 0; i < kPart; i += 64) {
      for (int64_t l = 0; l < 64; ++l) lanes[l] += from[i + l];
    }
    for (const float lane : lanes) sums[static_cast<size_t>(part)] += lane;
  });
}

struct Layout {
  int64_t queries, heads, kv_heads, head_dim;
};

void add_decode(Context& context, const Layout& l, DType dtype) {
  constexpr int64_t kCacheBytes = 1 << 26;
  const Device& device = context.device();
  const int64_t length = kCacheBytes / (l.kv_heads * l.head_dim * static_cast<int64_t>(size_of(dtype)));
  const Tensor q = random_tensor({1, l.queries, l.heads, l.head_dim}, device);
  const bool scaled = dtype == DType::u8;
  const float high = scaled ? 256 : 1;
  const Tensor k = random_tensor({1, l.kv_heads, length, l.head_dim}, device, 1, scaled ? 0 : -1, high).to(dtype);
  const Tensor v = k.clone();
  const Tensor scale = scaled ? Tensor::full({1, l.kv_heads, length}, 0.01, DType::f32, device) : Tensor();
  const Tensor lengths = Tensor::from(std::vector<int64_t>{length}, {1}, device);
  const Tensor block = Tensor::full({2 * kCacheBytes / 4}, 0.5, DType::f32, device);
  const auto [time, time_read] = context.seconds(
      [&] {
        ops::attention_decode(q, k, v, lengths, {}, {}, {scale, scale});
      },
      [&] { read_all(block); });
  context.add(
      {str("attention_decode ", l.queries, " queries, ", l.heads, "/", l.kv_heads, " heads x ", l.head_dim, " ", dtype),
       2e-9 * kCacheBytes / time, 2e-9 * kCacheBytes / time_read, "GB/s", "reading memory"});
}

}  // namespace

LAMINA_BENCH_SUITE(attention_decode) {
  const Layout layouts[] = {{1, 1, 1, 64},   {1, 8, 8, 64},   {1, 8, 8, 128}, {1, 16, 8, 128},
                            {1, 32, 8, 128}, {1, 64, 8, 128}, {1, 32, 4, 64}, {4, 8, 2, 64}};
  for (const Layout& layout : layouts) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::u8}) add_decode(context, layout, dtype);
  }
}

}  // namespace lamina::bench
