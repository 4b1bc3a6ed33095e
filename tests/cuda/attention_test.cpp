// Attention with more queries and keys than thread blocks and shared memory hold at once, and several rows and heads.
// The op case is too small for that. The truth is the CPU kernel in f64, which the op case verifies.
#include <algorithm>
#include <cmath>

#include "cuda/on_gpu.h"
#include "lamina/ops/attention/attention.h"
#include "support/close.h"
#include "support/random_tensor.h"

namespace lamina::testing {
namespace {

using Kind = ops::AttentionPattern::Kind;

struct Feature {
  const char* name;
  ops::AttentionOptions options = {};
  bool alibi = false, t5 = false, sinks = false, documents = false;
};

std::vector<Feature> features() {
  const ops::AttentionPattern window{.kind = Kind::window, .window = 150};
  const ops::AttentionPattern blocks{.kind = Kind::blocks, .block = 64, .random_blocks = 1, .seed = 3};
  return {{"sinks", {}, false, false, true},
          {"sinks, not causal", {.causal = false}, false, false, true},
          {"ALiBi", {}, true},
          {"ALiBi, not causal", {.causal = false}, true},
          {"T5", {.t5_max_distance = 100}, false, true},
          {"both", {.t5_max_distance = 100}, true, true},
          {"window", {.pattern = window}},
          {"window, not causal, ALiBi", {.causal = false, .pattern = window}, true},
          {"blocks", {.pattern = blocks}},
          {"documents", {}, false, false, false, true},
          {"documents, ALiBi", {}, true, false, false, true},
          {"soft cap and ALiBi", {.soft_cap = 2.0}, true},
          {"dropout", {.dropout = 0.2, .dropout_key = {5, 6}}},
          {"dropout, documents and sinks", {.dropout = 0.2, .dropout_key = {5, 6}}, false, false, true, true}};
}

constexpr int64_t kBatch = 2;
constexpr int64_t kSeq = 430;
constexpr int64_t kHeads = 4;
constexpr int64_t kKeyHeads = 2;

struct Heads {
  Tensor q, k, v;
  explicit Heads(int64_t width)
      : q(random_tensor({kBatch, kSeq, kHeads, width}, 1, DType::bf16)),
        k(random_tensor({kBatch, kSeq, kKeyHeads, width}, 2, DType::bf16)),
        v(random_tensor({kBatch, kSeq, kKeyHeads, width}, 3, DType::bf16)) {}
};

std::vector<double> attend(const Heads& heads, const Feature& feature, DType dtype, const Device& device) {
  const auto there = [&](const Tensor& x) { return x.to(dtype).to(device); };
  const DType extra = dtype == DType::f64 ? DType::f64 : DType::f32;
  ops::AttentionExtras extras;
  if (feature.alibi) extras.alibi_slopes = Tensor::from<double>({0.3, 0.1, 0.05, 0.01}, {kHeads}, device).to(extra);
  if (feature.t5) extras.t5_bias = random_tensor({16, kHeads}, 4, extra).to(device);
  if (feature.sinks) extras.sinks = random_tensor({kHeads}, 5, extra).to(device);
  if (feature.documents) extras.document_starts = Tensor::from<int64_t>({0, 90, 91, 320, kSeq}, {5}, device);
  return ops::attention(there(heads.q), there(heads.k), there(heads.v), feature.options, extras).to_vector<double>();
}

using CudaAttention = OnGpu<>;

TEST_F(CudaAttention, EveryFeatureEqualsTheCpus) {
  for (const int64_t width : {int64_t{64}, int64_t{40}, int64_t{128}}) {
    const Heads heads(width);
    for (const Feature& feature : features()) {
      const std::vector<double> truth = attend(heads, feature, DType::f64, Device::cpu(2));
      for (const DType dtype : {DType::bf16, DType::f16}) {
        const std::vector<double> ours = attend(heads, feature, dtype, Device::cuda());
        EXPECT_EQ(ours, attend(heads, feature, dtype, Device::cuda())) << feature.name << ", a second time";
        // Scores, weights and the result are each rounded to `dtype`.
        EXPECT_LE(largest_error(ours, truth), 3 * epsilon(dtype) * largest_magnitude(truth))
            << feature.name << ", " << width << " wide";
      }
    }
  }
}

// Slices of one packed projection, and the KV cache layout [batch, heads, seq, d], are read through their strides.
TEST_F(CudaAttention, ViewsGiveTheBitsOfCopies) {
  const Device gpu = Device::cuda();
  constexpr int64_t kWidth = 64;
  const int64_t keys = kKeyHeads * kWidth;
  const Tensor joined = random_tensor({kBatch, kSeq, kHeads * kWidth + 2 * keys}, 1, DType::bf16).to(gpu);
  const auto piece = [&](int64_t begin, int64_t heads) {
    return joined.slice(2, begin, heads * kWidth).reshape({kBatch, kSeq, heads, kWidth});
  };
  const Tensor q = piece(0, kHeads);
  const Tensor k = piece(kHeads * kWidth, kKeyHeads);
  const Tensor v = piece(kHeads * kWidth + keys, kKeyHeads);
  ASSERT_TRUE(q.shares_memory_with(joined) && k.shares_memory_with(joined) && v.shares_memory_with(joined));
  const ops::AttentionExtras extras{.sinks = random_tensor({kHeads}, 5, DType::f32).to(gpu)};
  const auto attend = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    return ops::attention(a, b, c, {}, extras).to_vector<double>();
  };
  const auto expected = attend(q.clone(), k.clone(), v.clone());
  EXPECT_EQ(attend(q, k, v), expected);
  const auto turned = [](const Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); };
  EXPECT_EQ(attend(turned(q), turned(k), turned(v)), expected);
}

}  // namespace
}  // namespace lamina::testing
