// Ring attention and its gathered form against attention() of the whole sequence in f64: outputs and every gradient;
// which blocks of queries and keys meet.
#include "lamina/ops/parallel/context_attention.h"

#include <gtest/gtest.h>

#include "lamina/autograd/tape.h"
#include "lamina/base/philox.h"
#include "lamina/comm/local.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/parallel/ring_blocks.h"

namespace lamina::testing {
namespace {

Tensor random_tensor(const Shape& shape, uint64_t stream) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = philox_word({17, stream}, i) * 0x1p-31 - 1.0;
  }
  return Tensor::from(values, shape, Device::cpu(1));
}

struct Case {
  std::string name;
  int ranks = 2;
  int64_t seq = 16;
  ops::AttentionOptions options = {};
  std::vector<int64_t> documents = {};
  bool sinks = false;
  bool alibi = false;
  bool t5 = false;
};

/// Inputs of whole sequences, with leaves on a tape.
struct Inputs {
  Tape tape;
  Tensor q, k, v, dy, sinks, t5;
  ops::AttentionExtras extras;

  explicit Inputs(const Case& c)
      : q(random_tensor({2, c.seq, 6, 8}, 1)),
        k(random_tensor({2, c.seq, 2, 8}, 2)),
        v(random_tensor({2, c.seq, 2, 5}, 3)),
        dy(random_tensor({2, c.seq, 6, 5}, 4)) {
    for (Tensor* leaf : {&q, &k, &v}) tape.watch(*leaf);
    if (c.sinks) {
      sinks = random_tensor({6}, 5);
      tape.watch(sinks);
      extras.sinks = sinks;
    }
    if (c.t5) {
      t5 = random_tensor({8, 6}, 6);
      tape.watch(t5);
      extras.t5_bias = t5;
    }
    if (c.alibi) extras.alibi_slopes = Tensor::full({6}, 0.3, DType::f32, Device::cpu(1));
  }
};

/// A rank's tokens of x [batch, seq, ...].
Tensor own_tokens(const Tensor& x, const ops::ContextShare& share) {
  const auto [first, second] = share.chunks();
  return ops::concat({x.slice(1, first.begin, first.size()), x.slice(1, second.begin, second.size())}, 1);
}

double difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>();
  const std::vector<double> y = b.to_vector<double>();
  double largest = x.size() == y.size() ? 0 : 1e9;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

void expect_equal(const Case& c) {
  Inputs whole(c);
  if (!c.documents.empty()) {
    whole.extras.document_starts =
        Tensor::from(c.documents, {static_cast<int64_t>(c.documents.size())}, Device::cpu(1));
  }
  const Tensor y = ops::attention(whole.q, whole.k, whole.v, c.options, whole.extras);
  whole.tape.backward({y}, {whole.dy});
  std::mutex mutex;
  Tensor sinks_sum = Tensor::zeros({6}, DType::f64, Device::cpu(1));
  Tensor t5_sum = Tensor::zeros({8, 6}, DType::f64, Device::cpu(1));
  comm::run_local_ranks(c.ranks, [&](comm::Communicator& ranks) {
    const std::shared_ptr<comm::Communicator> own(&ranks, [](comm::Communicator*) {});
    const auto share = std::make_shared<ops::ContextShare>(ops::ContextShare{own, c.seq, c.documents});
    Inputs part(c);
    const Tensor got = ops::context_attention(own_tokens(part.q, *share), own_tokens(part.k, *share),
                                              own_tokens(part.v, *share), share, c.options, part.extras);
    part.tape.backward({got}, {own_tokens(part.dy, *share)});
    const std::lock_guard lock(mutex);
    EXPECT_LE(difference(got.detach(), own_tokens(y.detach(), *share)), 1e-13) << c.name;
    const auto same = [&](const Tensor& a, const Tensor& b) {
      return difference(own_tokens(part.tape.grad(a), *share), own_tokens(whole.tape.grad(b), *share));
    };
    EXPECT_LE(same(part.q, whole.q), 1e-13) << c.name << " dq";
    EXPECT_LE(same(part.k, whole.k), 1e-13) << c.name << " dk";
    EXPECT_LE(same(part.v, whole.v), 1e-13) << c.name << " dv";
    if (c.sinks) sinks_sum.add_(part.tape.grad(part.sinks));
    if (c.t5) t5_sum.add_(part.tape.grad(part.t5));
  });
  if (c.sinks) {
    EXPECT_LE(difference(sinks_sum, whole.tape.grad(whole.sinks)), 1e-12) << c.name;
  }
  if (c.t5) {
    EXPECT_LE(difference(t5_sum, whole.tape.grad(whole.t5)), 1e-12) << c.name;
  }
}

TEST(ContextAttention, OutputsAndGradientsEqualWholeSequences) {
  using Kind = ops::AttentionPattern::Kind;
  const std::vector<int64_t> documents{0, 1, 2, 9, 30, 31, 37};
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool causal : {true, false}) {
      for (const int64_t seq : {int64_t{2 * ranks}, int64_t{37}}) {
        Case c{str(ranks, " ranks, causal ", causal, ", seq ", seq), ranks, seq, {.causal = causal}};
        expect_equal(c);
        c.sinks = true;
        c.options.soft_cap = 2.0;
        c.options.scale = 0.7;
        expect_equal(c);
        if (seq != 37) continue;
        c.documents = documents;
        c.name += " documents";
        expect_equal(c);
      }
    }
    for (const bool packed : {false, true}) {
      const std::vector<int64_t> starts = packed ? documents : std::vector<int64_t>{};
      expect_equal({"window", ranks, 37, {.pattern = {.kind = Kind::window, .window = 6}}, starts, true});
      expect_equal({"chunks",
                    ranks,
                    37,
                    {.pattern = {.kind = Kind::blocks, .block = 5, .window_blocks = 0, .global_blocks = 0}},
                    starts});
      expect_equal({"strided", ranks, 37, {.pattern = {.kind = Kind::strided, .window = 3, .stride = 4}}, starts});
      expect_equal({"alibi", ranks, 37, {.soft_cap = 3.0}, starts, true, true});
      expect_equal({"t5", ranks, 37, {.t5_max_distance = 20}, starts, false, false, true});
    }
  }
}

TEST(ContextAttention, BlocksCoverEveryVisiblePairOnce) {
  for (const int ranks : {2, 3, 5}) {
    for (const bool causal : {true, false}) {
      for (const std::vector<int64_t>& documents :
           std::vector<std::vector<int64_t>>{{}, {0, 3, 4, 20, 43}, {0, 22, 43}}) {
        comm::run_local_ranks(ranks, [&](comm::Communicator& c) {
          const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
          const ops::ContextShare share{own, 43, documents};
          const auto token_positions = [&](int rank) {
            std::vector<int64_t> positions;
            for (const ops::PositionRange& chunk : share.chunks(rank)) {
              for (int64_t at = chunk.begin; at < chunk.end; ++at) positions.push_back(at);
            }
            return positions;
          };
          const std::vector<int64_t> queries = token_positions(c.rank());
          for (int other = 0; other < ranks; ++other) {
            if (other == c.rank()) continue;
            const std::vector<int64_t> keys = token_positions(other);
            std::map<std::pair<int64_t, int64_t>, int> seen;
            for (const ops::RingBlock& b : ops::ring_blocks(share, causal, other)) {
              for (int64_t q = b.query; q < b.query + b.queries; ++q) {
                for (int64_t k = b.key; k < b.key + b.keys; ++k) {
                  ++seen[{queries.at(static_cast<size_t>(q)), keys.at(static_cast<size_t>(k))}];
                }
              }
            }
            for (const int64_t q : queries) {
              for (const int64_t k : keys) {
                const bool same = share.document(q).begin == share.document(k).begin;
                const auto pair = std::pair(q, k);
                EXPECT_EQ(seen.contains(pair) ? seen.at(pair) : 0, same && (!causal || k <= q) ? 1 : 0);
              }
            }
            if (documents.empty()) {
              EXPECT_EQ(ops::ring_blocks(share, causal, other).size(), 1U);
            }
          }
        });
      }
    }
  }
}

TEST(ContextAttention, EveryRankSeesEquallyManyPairs) {
  constexpr int64_t kSeq = 64;
  for (int rank = 0; rank < 4; ++rank) {
    int64_t pairs = 0;
    for (const ops::PositionRange& chunk : ops::zigzag_chunks(kSeq, 4, rank)) {
      for (int64_t at = chunk.begin; at < chunk.end; ++at) pairs += at + 1;
    }
    EXPECT_EQ(pairs, kSeq * (kSeq + 1) / 2 / 4);
  }
}

TEST(ContextAttention, WhatItCannotComputeIsRefused) {
  comm::run_local_ranks(2, [](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    const auto share = std::make_shared<ops::ContextShare>(ops::ContextShare{own, 8});
    const Tensor x = random_tensor({1, 4, 2, 4}, 1);
    EXPECT_THROW(ops::context_attention(x, x, x, share, {.dropout = 0.1}), Error);
    EXPECT_THROW(
        ops::context_attention(
            x, x, x, share, {.causal = false, .pattern = {.kind = ops::AttentionPattern::Kind::window, .window = 3}}),
        Error);
    const Tensor longer = random_tensor({1, 5, 2, 4}, 1);
    EXPECT_THROW(ops::context_attention(longer, longer, longer, share), Error);
    const auto tiny = std::make_shared<ops::ContextShare>(ops::ContextShare{own, 3});
    EXPECT_THROW(ops::context_attention(x, x, x, tiny), Error);
  });
}

}  // namespace
}  // namespace lamina::testing
