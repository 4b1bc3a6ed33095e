// Invariants for all sizes and options. Results of identical arithmetic must be bit-identical; otherwise both sides are
// in f64 and must agree a million times more closely than f32 with f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "lamina/ops.h"
#include "support/close.h"
#include "support/uniform.h"

namespace lamina {
namespace {

using testing::largest_error;

const Device& device() {
  static const Device cpu = Device::cpu(2);
  return cpu;
}

Tensor draw(const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& value : values) value = testing::uniform(random, -1.0, 1.0);
  return Tensor::from(values, shape, device());
}

using Side = std::function<Tensor(DType)>;

void expect_equal_beyond_f32(const Side& left, const Side& right, const std::string& what) {
  const Tensor precise = left(DType::f64);
  const double single_error = largest_error(precise, left(DType::f32));
  ASSERT_GT(single_error, 0) << what;
  EXPECT_LE(largest_error(precise, right(DType::f64)), single_error * 0x1p-20) << what;
}

struct Qkv {
  Tensor q, k, v;
};

Qkv draw_qkv(int64_t batch, int64_t seq, int64_t heads, int64_t kv_heads, int64_t dim, uint64_t seed) {
  return {draw({batch, seq, heads, dim}, seed), draw({batch, seq, kv_heads, dim}, seed + 1),
          draw({batch, seq, kv_heads, dim}, seed + 2)};
}

std::vector<ops::AttentionOptions> causal_options() {
  std::vector<ops::AttentionOptions> all(6);
  all[1].pattern = {.kind = ops::AttentionPattern::Kind::window, .window = 9};
  all[2].pattern = {.kind = ops::AttentionPattern::Kind::window, .window = 9, .global_tokens = 3};
  all[3].pattern = {.kind = ops::AttentionPattern::Kind::blocks, .block = 8, .random_blocks = 1};
  all[4].pattern = {.kind = ops::AttentionPattern::Kind::strided, .window = 5, .stride = 7};
  all[5].soft_cap = 3.0;
  return all;
}

TEST(attention_property, UnderACausalMaskTheFutureNeverMatters) {
  constexpr int64_t kSeq = 83;
  constexpr int64_t kSeen = 50;
  const Qkv now = draw_qkv(2, kSeq, 4, 2, 16, 1);
  const Qkv other = draw_qkv(2, kSeq, 4, 2, 16, 9);
  const auto with_other_future = [&](const Tensor& a, const Tensor& b) {
    return ops::concat({a.slice(1, 0, kSeen), b.slice(1, kSeen, kSeq - kSeen)}, 1);
  };
  for (const ops::AttentionOptions& options : causal_options()) {
    const Tensor before = ops::attention(now.q, now.k, now.v, options);
    const Tensor after = ops::attention(with_other_future(now.q, other.q), with_other_future(now.k, other.k),
                                        with_other_future(now.v, other.v), options);
    EXPECT_EQ(before.slice(1, 0, kSeen).to_vector<double>(), after.slice(1, 0, kSeen).to_vector<double>())
        << "pattern " << static_cast<int>(options.pattern.kind);
  }
}

TEST(attention_property, SharedKeysAreRepeatedKeys) {
  constexpr int64_t kHeads = 6;
  for (const int64_t kv_heads : {1, 2, 3, 6}) {
    const Qkv in = draw_qkv(2, 70, kHeads, kv_heads, 16, 3);
    const auto repeated = [&](const Tensor& t) {
      std::vector<Tensor> heads;
      for (int64_t h = 0; h < kHeads; ++h) heads.push_back(t.slice(2, h / (kHeads / kv_heads), 1));
      return ops::concat(heads, 2);
    };
    expect_equal_beyond_f32(
        [&](DType t) { return ops::attention(in.q.to(t), in.k.to(t), in.v.to(t)); },
        [&](DType t) { return ops::attention(in.q.to(t), repeated(in.k).to(t), repeated(in.v).to(t)); },
        str(kv_heads, " key heads"));
  }
}

TEST(attention_property, AWindowAsLongAsTheSequenceIsNoWindow) {
  const Qkv in = draw_qkv(1, 65, 2, 2, 8, 5);
  for (const bool causal : {true, false}) {
    ops::AttentionOptions windowed{.causal = causal};
    windowed.pattern = {.kind = ops::AttentionPattern::Kind::window, .window = 65};
    expect_equal_beyond_f32(
        [&](DType t) { return ops::attention(in.q.to(t), in.k.to(t), in.v.to(t), {.causal = causal}); },
        [&](DType t) { return ops::attention(in.q.to(t), in.k.to(t), in.v.to(t), windowed); }, str("causal ", causal));
  }
}

TEST(attention_property, PackedDocumentsAreSeparateCalls) {
  const Qkv in = draw_qkv(1, 90, 2, 1, 16, 6);
  const std::vector<int64_t> starts{0, 7, 50, 51, 90};
  ops::AttentionExtras extras;
  extras.document_starts = Tensor::from(starts, {5}, device());
  const auto separate = [&](DType t) {
    std::vector<Tensor> parts;
    for (size_t d = 0; d + 1 < starts.size(); ++d) {
      const auto part = [&](const Tensor& x) { return x.slice(1, starts[d], starts[d + 1] - starts[d]).to(t); };
      parts.push_back(ops::attention(part(in.q), part(in.k), part(in.v)));
    }
    return ops::concat(parts, 1);
  };
  expect_equal_beyond_f32([&](DType t) { return ops::attention(in.q.to(t), in.k.to(t), in.v.to(t), {}, extras); },
                          separate, "four documents");
}

TEST(attention_property, DecodingAgainstACacheIsTheFullForward) {
  constexpr int64_t kSeq = 77;
  const Qkv in = draw_qkv(2, kSeq, 4, 2, 16, 7);
  for (ops::AttentionOptions options : causal_options()) {
    const auto full = [&](DType t) {
      return ops::attention(in.q.to(t), in.k.to(t), in.v.to(t), options).slice(1, kSeq - 3, 3).contiguous();
    };
    const auto cached = [&](DType t) {
      const Tensor lengths = Tensor::from(std::vector<int64_t>{kSeq, kSeq}, {2}, device());
      return ops::attention_decode(in.q.to(t).slice(1, kSeq - 3, 3), in.k.to(t).transpose(1, 2).contiguous(),
                                   in.v.to(t).transpose(1, 2).contiguous(), lengths, options);
    };
    expect_equal_beyond_f32(full, cached, str("pattern ", static_cast<int>(options.pattern.kind)));
  }
}

TEST(rotary_property, ScoresDependOnTheDistanceOnly) {
  constexpr int64_t kDim = 16;
  const Tensor q = draw({1, 1, 1, kDim}, 11);
  const Tensor k = draw({1, 1, 1, kDim}, 12);
  for (const auto pairing : {ops::RotaryPairing::half_split, ops::RotaryPairing::interleaved}) {
    for (const int64_t rotary_dim : {kDim, kDim / 2}) {
      const auto score = [&](DType t, int64_t at_q, int64_t at_k) {
        const auto tables = ops::rotary_tables(2048, rotary_dim, {}, device());
        const auto rotated = [&](const Tensor& x, int64_t at) {
          return ops::rotary(x.to(t), tables.cos, tables.sin,
                             {.pairing = pairing, .rotary_dim = rotary_dim, .offset = at});
        };
        return ops::sum(ops::mul(rotated(q, at_q), rotated(k, at_k)));
      };
      // The tables are f32, so their rounding, not the rotation's, may differ along the sequence.
      const double near = score(DType::f64, 37, 20).item();
      const double far = score(DType::f64, 1037, 1020).item();
      const double other_distance = score(DType::f64, 1037, 1000).item();
      EXPECT_NEAR(near, far, static_cast<double>(kDim) * 0x1p-22);
      EXPECT_GT(std::abs(near - other_distance), 1000 * std::abs(near - far));
    }
  }
}

TEST(moe_property, OneExpertIsThePlainNetwork) {
  const Tensor x = draw({37, 16}, 21);
  const Tensor up = draw({24, 16}, 22);
  const Tensor down = draw({16, 12}, 23);
  const auto mlp = [&](DType t) {
    return ops::linear(ops::gated_activation(ops::linear(x.to(t), up.to(t)), ops::Gate::swiglu), down.to(t));
  };
  const auto expert = [&](DType t) {
    const auto routing = ops::route_top_k(Tensor::zeros({37, 1}, t, device()), {.k = 1});
    const auto plan = ops::plan_dispatch(routing.indices, 1);
    const Tensor rows = ops::dispatch(x.to(t), plan);
    const Tensor hidden = ops::gated_activation(ops::grouped_linear(rows, up.to(t).reshape({1, 24, 16}), plan.offsets),
                                                ops::Gate::swiglu);
    return ops::combine(ops::grouped_linear(hidden, down.to(t).reshape({1, 16, 12}), plan.offsets), routing.weights,
                        plan);
  };
  expect_equal_beyond_f32(mlp, expert, "one expert");
}

TEST(loss_property, FusedAndPlainCrossEntropyAgree) {
  const Tensor x = draw({33, 20}, 31);
  const Tensor weight = draw({130, 20}, 32);
  std::vector<int64_t> ids(33);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i % 5 == 0 ? -100 : static_cast<int64_t>(i * 37 % 130);
  const Tensor targets = Tensor::from(ids, {33}, device());
  const ops::CrossEntropyOptions options{.label_smoothing = 0.1, .z_loss = 1e-2, .soft_cap = 5.0};
  expect_equal_beyond_f32(
      [&](DType t) { return ops::cross_entropy(ops::linear(x.to(t), weight.to(t)), targets, options); },
      [&](DType t) { return ops::linear_cross_entropy(x.to(t), weight.to(t), targets, options); }, "loss");
}

}  // namespace
}  // namespace lamina
