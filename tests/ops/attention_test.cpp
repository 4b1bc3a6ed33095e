#include "lamina/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>

#include "lamina/autograd/tape.h"
#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/attention/attention_mask.h"
#include "lamina/ops/elementwise/reduce.h"
#include "support/close.h"
#include "support/error_of.h"
#include "support/uniform.h"

namespace lamina::ops {
namespace {

using testing::expect_error;
using Kind = AttentionPattern::Kind;

Tensor random_tensor(const Shape& shape, const Device& device, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = testing::uniform(random, -1.0F, 1.0F);
  return Tensor::from(values, shape, device);
}

/// An allocator that fails the n-th request.
class ScarceMemory final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    LAMINA_CHECK(left_.fetch_sub(1) != 0, "out of memory: a test wants it so");
    return inner_->allocate(bytes);
  }
  void deallocate(void* block, size_t bytes) noexcept override { inner_->deallocate(block, bytes); }
  void trim() override { inner_->trim(); }
  MemoryCounters counters() const override { return inner_->counters(); }
  void reset_peak() override { inner_->reset_peak(); }
  void leave(int requests) { left_ = requests; }

 private:
  std::shared_ptr<Allocator> inner_ = make_caching_cpu_allocator();
  std::atomic<int> left_{1 << 30};
};

TEST(AttentionBackward, EndsWhenATaskRunsOutOfMemory) {
  const auto memory = std::make_shared<ScarceMemory>();
  const Device device = Device::cpu(3, memory);
  Tensor q = random_tensor({1, 700, 2, 8}, device, 1);
  const Tensor k = random_tensor({1, 700, 2, 8}, device, 2);
  const Tensor v = random_tensor({1, 700, 2, 8}, device, 3);
  int failures = 0;
  for (int requests = 0; requests < 64; ++requests) {
    Tape tape;
    tape.watch(q);
    const Tensor loss = sum(attention(q, k, v));
    memory->leave(requests);
    try {
      tape.backward(loss);
    } catch (const Error&) {
      ++failures;
    }
    memory->leave(1 << 30);
  }
  EXPECT_GT(failures, 8);
  EXPECT_LT(failures, 64);
}

class AttentionErrors : public ::testing::Test {
 protected:
  Tensor make(const Shape& shape, DType dtype = DType::f32) const { return Tensor::zeros(shape, dtype, device_); }
  Tensor starts(const std::vector<int64_t>& values) const {
    return Tensor::from(values, {static_cast<int64_t>(values.size())}, device_);
  }
  void expect(const AttentionOptions& options, const std::string& part, const AttentionExtras& extras = {}) const {
    const Tensor x = make({1, 6, 2, 4});
    expect_error([&] { attention(x, x, x, options, extras); }, part);
  }
  void expect_pattern(const AttentionPattern& pattern, const std::string& part) const {
    expect({.pattern = pattern}, part);
  }

  Device device_ = Device::cpu(1);
};

TEST_F(AttentionErrors, NameTheTensorThatDoesNotFit) {
  const Tensor q = make({2, 6, 4, 8});
  expect_error([&] { attention(Tensor(), q, q); }, "q is undefined");
  expect_error([&] { attention(make({2, 6, 8}), q, q); }, "expected [batch, seq_q, n_heads, d_qk]");
  expect_error([&] { attention(q, make({2, 6, 3, 8}), make({2, 6, 3, 8})); }, "q has 4 heads, k has 3");
  expect_error([&] { attention(q, make({2, 6, 0, 8}), make({2, 6, 0, 8})); }, "q has 4 heads, k has 0");
  expect_error([&] { attention(q, make({2, 6, 4, 7}), q); }, "k is [2,6,4,7]");
  expect_error([&] { attention(q, q, make({2, 5, 4, 8})); }, "v is [2,5,4,8]");
  expect_error([&] { attention(q, make({2, 6, 4, 8}, DType::bf16), q); }, "k is bf16; expected f32");
  expect_error([&] { attention(make({2, 6, 4, 8}, DType::i32), q, q); }, "q is i32");
  expect_error([&] { attention(q, q, Tensor::zeros({2, 6, 4, 8}, DType::f32, Device::meta())); }, "another on");
}

TEST_F(AttentionErrors, NameTheOption) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect({.scale = nan}, "scale is nan");
  expect({.soft_cap = -1}, "soft_cap is -1");
  expect({.soft_cap = nan}, "soft_cap is nan");
  expect({.dropout = 1}, "dropout is 1; expected a probability in [0, 1)");
  expect({.dropout = nan}, "dropout is nan");
  expect_pattern({.kind = Kind::window}, "pattern.window is 0; expected from 1 up to");
  expect_pattern({.kind = Kind::blocks, .random_blocks = 1025},
                 "pattern.random_blocks is 1025; expected from 0 up to 1024");
  expect_pattern({.kind = Kind::window, .window = 2, .global_tokens = -1}, "pattern.global_tokens is -1");
  expect_pattern({.kind = Kind::strided, .window = 2}, "pattern.stride is 0");
  expect_pattern({.kind = Kind::blocks, .block = 0}, "pattern.block is 0");
  expect_pattern({.kind = Kind::blocks, .random_blocks = -3}, "pattern.random_blocks is -3");
  expect_pattern({.kind = Kind::blocks, .last_blocks = 1}, "in causal attention");
  AttentionPattern given{.kind = Kind::blocks, .block = 2, .random_blocks = 1};
  given.table = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{0, 1});
  expect_pattern(given, "pattern.table has 2 entries; expected 3 blocks of 1");
  given.table = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{0, 1, 3});
  expect_pattern(given, "pattern.table names block 3 of 3");
  const Tensor short_text = make({1, 5, 2, 4});
  expect_error(
      [&] {
        attention(make({1, 6, 2, 4}), short_text, short_text, {.pattern = {.kind = Kind::window, .window = 2}});
      },
      "6 queries and 5 keys");
}

TEST_F(AttentionErrors, NameTheExtra) {
  expect({}, "alibi_slopes is [3]", {.alibi_slopes = make({3})});
  expect({}, "sinks is [1]", {.sinks = make({1})});
  expect({}, "t5_bias is [8,3]", {.t5_bias = make({8, 3})});
  expect({}, "t5_bias has 1 buckets", {.t5_bias = make({1, 2})});
  expect({.causal = false}, "t5_bias has 7 buckets", {.t5_bias = make({7, 2})});
  expect({.t5_max_distance = 4}, "t5_max_distance is 4; 8 buckets need more than 4", {.t5_bias = make({8, 2})});
  expect({}, "document_starts is f32", {.document_starts = make({3})});
  expect({}, "document_starts is [1]", {.document_starts = starts({0})});
  expect({}, "runs from 1 to 6", {.document_starts = starts({1, 6})});
  expect({}, "runs from 0 to 7", {.document_starts = starts({0, 7})});
  expect({}, "falls from 4 to 3 at index 2", {.document_starts = starts({0, 4, 3, 6})});
}

TEST_F(AttentionErrors, OfDecoding) {
  const Tensor q = make({1, 2, 4, 8});
  const Tensor cache = make({1, 2, 10, 8});
  const Tensor length = starts({10});
  expect_error([&] { attention_decode(q, make({1, 3, 10, 8}), make({1, 3, 10, 8}), length); }, "the caches have 3");
  expect_error([&] { attention_decode(q, make({1, 10, 8}), cache, length); }, "n_kv_heads, capacity");
  expect_error([&] { attention_decode(q, cache, cache, starts({11})); },
               "lengths[0] is 11; expected 0, or from seq_q 2");
  expect_error([&] { attention_decode(q, cache, cache, starts({1})); }, "lengths[0] is 1");
  expect_error([&] { attention_decode(q, cache, cache, starts({10, 10})); }, "lengths is [2]");
  expect_error([&] { attention_decode(q, cache, cache, make({1})); }, "i32 or i64");
  expect_error([&] { attention_decode(q, cache, cache, length, {.dropout = 0.5}); }, "dropout is 0.5");
  expect_error(
      [&] {
        attention_decode(q, cache, cache, length, {}, {.document_starts = starts({0, 10})});
      },
      "document_starts is not supported with a KV cache");
  Tape tape;
  Tensor leaf = make({1, 2, 4, 8});
  tape.watch(leaf);
  expect_error([&] { attention_decode(leaf, cache, cache, length); }, "has no gradient");
  const Tensor bytes = cache.to(DType::u8);
  const Tensor scale = Tensor::zeros({cache.dim(0), cache.dim(1), cache.dim(2)}, DType::f32, cache.device());
  expect_error([&] { attention_decode(q, bytes, bytes, length); }, "k_cache is u8 without scales");
  expect_error([&] { attention_decode(q, bytes, bytes, length, {}, {}, {scale, {}}); }, "v_cache is u8 without scales");
  expect_error(
      [&] {
        attention_decode(q, cache, cache, length, {}, {}, {scale, scale});
      },
      "only u8 caches take scales");
  expect_error([&] { attention_decode(q, cache.to(DType::i32), cache.to(DType::i32), length); }, "or u8 with scales");
}

std::vector<AttentionPattern> patterns() {
  return {{},
          {.kind = Kind::window, .window = 1},
          {.kind = Kind::window, .window = 9},
          {.kind = Kind::window, .window = 5, .global_tokens = 3},
          {.kind = Kind::strided, .window = 3, .stride = 11},
          {.kind = Kind::strided, .window = 2, .stride = 1},
          {.kind = Kind::blocks, .block = 5, .random_blocks = 1, .seed = 4},
          {.kind = Kind::blocks, .block = 7, .window_blocks = 0, .global_blocks = 0, .random_blocks = 2},
          {.kind = Kind::blocks, .block = 1, .random_blocks = 2},
          {.kind = Kind::blocks, .block = 3, .window_blocks = 0, .global_blocks = 0},
          {.kind = Kind::blocks, .window = std::numeric_limits<int64_t>::min(), .block = 4}};  // `window` is unused
}

void check_tiles(const AttentionOptions& options, int64_t seq_q, int64_t seq_k,
                 const std::vector<int64_t>& document_starts = {}) {
  const AttentionMask mask(options, seq_q, seq_k, document_starts);
  int64_t allowed = 0;
  for (const int64_t tile : {1, 4, 8, 13}) {
    allowed = 0;
    for (int64_t q0 = 0; q0 < seq_q; q0 += tile) {
      for (int64_t k0 = 0; k0 < seq_k; k0 += tile) {
        const int64_t q1 = std::min(q0 + tile, seq_q);
        const int64_t k1 = std::min(k0 + tile, seq_k);
        int64_t count = 0;
        for (int64_t q = q0; q < q1; ++q) {
          for (int64_t k = k0; k < k1; ++k) count += mask.allows(q, k) ? 1 : 0;
        }
        allowed += count;
        const auto coverage = mask.coverage(q0, q1, k0, k1);
        if (coverage == AttentionMask::Coverage::none) {
          EXPECT_EQ(count, 0) << q0 << " " << k0;
        }
        if (coverage == AttentionMask::Coverage::full) {
          EXPECT_EQ(count, (q1 - q0) * (k1 - k0)) << q0 << " " << k0;
        }
        if (tile == 1) {
          EXPECT_EQ(coverage == AttentionMask::Coverage::none, count == 0) << q0 << " " << k0;
        }
      }
    }
  }
  const double pairs = AttentionMask::pairs(options, seq_q, seq_k, document_starts);
  EXPECT_GE(pairs, allowed);
  if (mask.is_contiguous_range()) {
    EXPECT_EQ(pairs, allowed);
  }
}

TEST(AttentionMask, TilesAgreeWithPairs) {
  for (const AttentionPattern& pattern : patterns()) {
    for (const bool causal : {true, false}) {
      const AttentionOptions options{.causal = causal, .pattern = pattern};
      SCOPED_TRACE(str("kind ", static_cast<int>(pattern.kind), causal ? " causal" : ""));
      check_tiles(options, 40, 40);
      check_tiles(options, 17, 40);
      check_tiles(options, 3, 0);  // an empty KV cache
      check_tiles(options, 40, 40, {0, 3, 3, 21, 40});
    }
  }
}

TEST(AttentionMask, RangesHoldEveryPair) {
  for (const AttentionPattern& pattern : patterns()) {
    for (const bool causal : {true, false}) {
      const AttentionMask mask({.causal = causal, .pattern = pattern}, 30, 37);
      for (int64_t q = 0; q < 30; ++q) {
        for (int64_t k = 0; k < 37; ++k) {
          const bool by_query = k >= mask.keys(q).begin && k < mask.keys(q).end;
          const bool by_key = q >= mask.queries(k).begin && q < mask.queries(k).end;
          EXPECT_EQ(by_query, by_key);
          if (mask.is_contiguous_range()) {
            EXPECT_EQ(mask.allows(q, k), by_query);
          }
          if (mask.allows(q, k)) {
            EXPECT_TRUE(by_query);
          }
        }
      }
    }
  }
}

TEST(Attention, SeeingOnlyItselfAQueryGetsItsValue) {
  const Device device = Device::cpu(2);
  const Tensor q = random_tensor({1, 150, 2, 8}, device);
  const Tensor v = random_tensor({1, 150, 2, 5}, device, 2);
  const Tensor y = attention(q, q, v, {.causal = false, .pattern = {.kind = Kind::window, .window = 1}});
  EXPECT_EQ(y.to_vector<float>(), v.to_vector<float>());
}

/// Output and gradients of q, k, v for a fixed output gradient.
std::vector<std::vector<float>> attend(Tensor q, Tensor k, Tensor v) {
  Tape tape;
  tape.watch(q);
  tape.watch(k);
  tape.watch(v);
  const Tensor y = attention(q, k, v);
  tape.backward({y}, {random_tensor(y.shape(), y.device(), 9)});
  return {y.to_vector<float>(), tape.grad(q).to_vector<float>(), tape.grad(k).to_vector<float>(),
          tape.grad(v).to_vector<float>()};
}

// Slices of one packed projection [batch, seq, 6·16 + 2·16 + 2·5], and the KV cache layout [batch, heads, seq, d], are
// read through their strides.
TEST(Attention, ViewsGiveTheBitsOfCopies) {
  const Device device = Device::cpu(2);
  const Tensor joined = random_tensor({2, 150, 138}, device);
  const Tensor q = joined.slice(2, 0, 96).reshape({2, 150, 6, 16});
  const Tensor k = joined.slice(2, 96, 32).reshape({2, 150, 2, 16});
  const Tensor v = joined.slice(2, 128, 10).reshape({2, 150, 2, 5});
  ASSERT_TRUE(q.shares_memory_with(joined) && k.shares_memory_with(joined) && v.shares_memory_with(joined));
  const auto expected = attend(q.clone(), k.clone(), v.clone());
  EXPECT_EQ(attend(q, k, v), expected);
  const auto turned = [](const Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); };
  EXPECT_EQ(attend(turned(q), turned(k), turned(v)), expected);
}

Tensor cache_of(const Tensor& x) { return x.transpose(1, 2).contiguous(); }

TEST(Attention, DecodingEqualsTheLastQueries) {
  const Device device = Device::cpu(2);
  const Tensor q = random_tensor({2, 700, 6, 16}, device);
  const Tensor k = random_tensor({2, 700, 2, 16}, device, 2);
  const Tensor v = random_tensor({2, 700, 2, 16}, device, 3);
  const Tensor lengths = Tensor::from(std::vector<int64_t>{700, 700}, {2}, device);
  const AttentionExtras extras{.alibi_slopes = random_tensor({6}, device, 4), .sinks = random_tensor({6}, device, 5)};
  for (const AttentionPattern& pattern : patterns()) {
    const AttentionOptions options{.pattern = pattern, .soft_cap = 5.0};
    const Tensor whole = attention(q, k, v, options, extras);
    const Tensor last = attention_decode(q.slice(1, 697, 3), cache_of(k), cache_of(v), lengths, options, extras);
    const auto wide = [](const Tensor& x) { return x.to(DType::f64); };
    const AttentionExtras wide_extras{.alibi_slopes = wide(extras.alibi_slopes), .sinks = wide(extras.sinks)};
    const Tensor truth = attention(wide(q), wide(k), wide(v), options, wide_extras);
    const auto end_of = [](const Tensor& y) { return y.slice(1, 697, 3).contiguous().to_vector<double>(); };
    testing::expect_as_close(last.to_vector<double>(), end_of(truth), end_of(whole), DType::f32, "decoding");
  }
}

TEST(Attention, DecodingReadsNarrowCaches) {
  const Device device = Device::cpu(2);
  const Tensor q = random_tensor({1, 1, 4, 16}, device);
  const Tensor k = random_tensor({1, 2, 90, 16}, device, 2).to(DType::bf16);
  const Tensor v = random_tensor({1, 2, 90, 16}, device, 3).to(DType::bf16);
  const Tensor lengths = Tensor::from(std::vector<int64_t>{83}, {1}, device);
  const Tensor y = attention_decode(q, k, v, lengths);
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(y.to_vector<float>(), attention_decode(q, k.to(DType::f32), v.to(DType::f32), lengths).to_vector<float>());
}

/// Peak bytes allocated beyond inputs, output and gradients.
int64_t extra_memory(int64_t seq, int64_t head_dim, bool backward, const AttentionOptions& options = {},
                     int threads = 2) {
  const Device device = Device::cpu(threads);
  Tensor q = random_tensor({1, seq, 1, head_dim}, device);
  Tensor k = random_tensor({1, seq, 1, head_dim}, device, 2);
  Tensor v = random_tensor({1, seq, 1, head_dim}, device, 3);
  Tape tape;
  if (backward) {
    for (Tensor* leaf : {&q, &k, &v}) tape.watch(*leaf);
  }
  const int64_t before = device.allocator().counters().live;
  device.allocator().reset_peak();
  Tensor y = attention(q, k, v, options);
  int64_t wanted = y.nbytes();
  if (backward) {
    tape.backward({y}, {q.clone()});
    wanted += 4 * y.nbytes();  // dy and the gradients of q, k, v
  }
  return device.allocator().counters().peak - before - wanted;
}

TEST(Attention, MemoryStaysSmallAtSixteenThousand) {
  EXPECT_LT(extra_memory(16384, 64, false), int64_t{64} << 20);
  EXPECT_LT(extra_memory(16384, 16, true), int64_t{64} << 20);
}

TEST(Attention, MemoryIsLinearInLength) {
  const AttentionOptions window{.pattern = {.kind = Kind::window, .window = 64}};
  // With one thread, the number of tasks that hold tiles at the same time is deterministic.
  const int64_t at_8k = extra_memory(8192, 8, true, window, 1);
  const int64_t at_16k = extra_memory(16384, 8, true, window, 1);
  EXPECT_LT(at_16k, 2 * at_8k + (1 << 16));
}

}  // namespace
}  // namespace lamina::ops
