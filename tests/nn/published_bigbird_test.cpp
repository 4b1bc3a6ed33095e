// BigBird attention as in the published code: its random blocks, and attention against plain loops.
#include "lamina/nn/mixers/published_bigbird.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "nn/model_support.h"
#include "support/uniform.h"

namespace lamina::testing {
namespace {

arch::BigBirdPattern published(int64_t block, int64_t random_blocks) {
  arch::BigBirdPattern pattern;
  pattern.block = block;
  pattern.last_blocks = 1;
  pattern.random_blocks = random_blocks;
  pattern.draw = arch::BlockDraw::numpy;
  return pattern;
}

/// Expected values: the functions of transformers 5.17 run with NumPy 1.24.
TEST(PublishedBigBird, RandomBlocksAreThoseOfTheReference) {
  const auto tables = nn::numpy_random_blocks(published(4, 2), 2, 64, 256, 0);
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_EQ(tables[0], (std::vector<int32_t>{0, 0, 4, 6, 5, 4, 5, 7, 1, 2, 3, 7, 3, 2, 5, 2,
                                             4, 6, 5, 4, 7, 6, 7, 3, 5, 7, 2, 4, 2, 4, 0, 0}));
  EXPECT_EQ(tables[1], (std::vector<int32_t>{0, 0, 3, 6, 6, 7, 7, 5, 2, 1, 1, 7, 1, 2, 4, 2,
                                             6, 4, 5, 7, 5, 1, 1, 7, 6, 1, 4, 2, 7, 2, 0, 0}));
}

/// Likewise, as a polynomial hash of the middle rows of all heads; the lengths of the paper have a plan of their own.
TEST(PublishedBigBird, RandomBlocksOfEveryLength) {
  struct Case {
    int64_t length, block, random_blocks, heads;
    uint32_t seed;
    int64_t context;
    uint32_t hash;
  };
  const std::vector<Case> cases = {
      {64, 4, 2, 2, 1, 256, 3975161174U},      {52, 4, 3, 1, 3, 256, 3261776175U},
      {1024, 64, 3, 12, 0, 4096, 4229681067U}, {4096, 64, 3, 12, 5, 4096, 3036027789U},
      {3072, 64, 3, 2, 1, 4096, 2400994449U},  {2048, 64, 3, 12, 2, 4096, 667643133U},
      {1024, 32, 2, 3, 2, 1024, 2245628878U},  {4096, 16, 3, 2, 2, 4096, 2276571597U},
  };
  for (const Case& c : cases) {
    uint32_t hash = 0;
    for (const auto& table :
         nn::numpy_random_blocks(published(c.block, c.random_blocks), c.heads, c.length, c.context, c.seed)) {
      ASSERT_EQ(static_cast<int64_t>(table.size()), c.length / c.block * c.random_blocks);
      for (size_t i = static_cast<size_t>(c.random_blocks); i + static_cast<size_t>(c.random_blocks) < table.size();
           ++i) {
        hash = hash * 31 + static_cast<uint32_t>(table[i]);
      }
    }
    EXPECT_EQ(hash, c.hash) << c.length << " tokens in blocks of " << c.block;
  }
}

constexpr int64_t kHeads = 4;
constexpr int64_t kWidth = 3;

struct Inputs {
  std::vector<double> q, k, v;
  int64_t length;
};

/// Softmax over the keys of the listed blocks; a block listed n times counts n times.
std::vector<double> loops(const Inputs& in, int64_t kv_heads, double scale, int64_t block,
                          const std::function<std::vector<int64_t>(int64_t head, int64_t query_block)>& seen) {
  std::vector<double> y(in.q.size());
  for (int64_t h = 0; h < kHeads; ++h) {
    const int64_t g = h / (kHeads / kv_heads);
    for (int64_t i = 0; i < in.length; ++i) {
      double total = 0;
      std::vector<double> sums(kWidth);
      for (const int64_t key_block : seen(h, i / block)) {
        for (int64_t j = key_block * block; j < std::min((key_block + 1) * block, in.length); ++j) {
          double score = 0;
          for (int64_t c = 0; c < kWidth; ++c) {
            score += in.q[static_cast<size_t>((i * kHeads + h) * kWidth + c)] *
                     in.k[static_cast<size_t>((j * kv_heads + g) * kWidth + c)];
          }
          const double weight = std::exp(scale * score);
          total += weight;
          for (int64_t c = 0; c < kWidth; ++c) {
            sums[static_cast<size_t>(c)] += weight * in.v[static_cast<size_t>((j * kv_heads + g) * kWidth + c)];
          }
        }
      }
      for (int64_t c = 0; c < kWidth; ++c) {
        y[static_cast<size_t>((i * kHeads + h) * kWidth + c)] = sums[static_cast<size_t>(c)] / total;
      }
    }
  }
  return y;
}

std::vector<int64_t> all_blocks(int64_t count) {
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < count; ++i) blocks.push_back(i);
  return blocks;
}

/// The first block, the neighbours and the last block, each once.
std::vector<int64_t> fixed_blocks(int64_t query_block, int64_t count) {
  std::vector<int64_t> blocks{0};
  for (int64_t b = std::max<int64_t>(query_block - 1, 1); b <= std::min(query_block + 1, count - 2); ++b) {
    blocks.push_back(b);
  }
  blocks.push_back(count - 1);
  return blocks;
}

struct Layer {
  Layer(int64_t length, int64_t kv_heads, int64_t block, int64_t random_blocks) {
    attention.n_heads = kHeads;
    attention.n_kv_heads = kv_heads;
    attention.head_dim = attention.v_head_dim = kWidth;
    attention.scale = 0.8;
    attention.causal = false;
    attention.pattern = published(block, random_blocks);
    std::mt19937_64 random(5);
    const auto fill = [&](std::vector<double>& values, int64_t heads) {
      for (int64_t i = 0; i < length * heads * kWidth; ++i) values.push_back(uniform(random, -1.5, 1.5));
    };
    in.length = length;
    fill(in.q, kHeads);
    fill(in.k, kv_heads);
    fill(in.v, kv_heads);
  }
  std::vector<double> run(bool training, int64_t layer) const {
    const Device device = Device::cpu(2);
    const auto tensor = [&](const std::vector<double>& values, int64_t heads) {
      return Tensor::from(values, {1, in.length, heads, kWidth}, device);
    };
    nn::ForwardContext pass;
    pass.batch = 1;
    pass.seq = in.length;
    pass.training = training;
    pass.layer = layer;
    const auto& p = std::get<arch::BigBirdPattern>(attention.pattern);
    ops::AttentionOptions options{.causal = false, .scale = *attention.scale};
    options.pattern = {.kind = ops::AttentionPattern::Kind::blocks,
                       .block = p.block,
                       .last_blocks = 1,
                       .random_blocks = p.random_blocks};
    const nn::PublishedBigBird mixer(attention, 256);
    return mixer
        .attend(tensor(in.q, kHeads), tensor(in.k, *attention.n_kv_heads), tensor(in.v, *attention.n_kv_heads), options,
                pass)
        .to_vector<double>();
  }
  arch::Attention attention;
  Inputs in;
};

/// The marks log(1 + random_blocks) of keys are f32 numbers, so scores err by δ = mark · epsilon / 2, weights by a
/// factor of e^±2δ, and outputs by 2δ of the largest value.
void expect_close(const std::vector<double>& ours, const std::vector<double>& truth, const std::string& what) {
  constexpr double kRandomBlocks = 2;
  const double tolerance = std::log1p(kRandomBlocks) * epsilon(DType::f32) * 1.5;
  EXPECT_LE(largest_error(ours, truth), tolerance) << what;
}

TEST(PublishedBigBird, InferenceCountsTheFirstBlockAgain) {
  for (const int64_t length : {64, 61, 37}) {  // a last block of one token, and one more than full attention has
    const Layer layer(length, 2, 4, 2);
    const int64_t count = (length + 3) / 4;
    expect_close(layer.run(false, 1),
                 loops(layer.in, 2, 0.8, 4,
                       [&](int64_t /*head*/, int64_t query_block) {
                         if (query_block == 0 || query_block == count - 1) return all_blocks(count);
                         std::vector<int64_t> blocks = fixed_blocks(query_block, count);
                         blocks.insert(blocks.end(), 2, 0);
                         return blocks;
                       }),
                 str(length, " tokens"));
  }
}

TEST(PublishedBigBird, TrainingShowsEveryHeadItsOwnBlocks) {
  for (const int64_t layer_index : {0, 3}) {
    const Layer layer(61, 2, 4, 2);
    const auto tables = nn::numpy_random_blocks(published(4, 2), kHeads, 61, 256, static_cast<uint32_t>(layer_index));
    expect_close(layer.run(true, layer_index),
                 loops(layer.in, 2, 0.8, 4,
                       [&](int64_t head, int64_t query_block) {
                         if (query_block == 0 || query_block == 15) return all_blocks(16);
                         std::vector<int64_t> blocks = fixed_blocks(query_block, 16);
                         const auto& table = tables[static_cast<size_t>(head)];
                         blocks.push_back(table[static_cast<size_t>(2 * query_block)]);
                         blocks.push_back(table[static_cast<size_t>(2 * query_block + 1)]);
                         return blocks;
                       }),
                 str("layer ", layer_index));
  }
}

TEST(PublishedBigBird, ShortDocumentsSeeEverything) {
  const Layer layer(36, 4, 4, 2);
  const auto truth = loops(layer.in, 4, 0.8, 4, [](int64_t, int64_t) { return all_blocks(9); });
  expect_close(layer.run(false, 0), truth, "inference");
  expect_close(layer.run(true, 0), truth, "training");
}

TEST(PublishedBigBird, PaddedRowsEqualRowsAlone) {
  const NamedSpec named = changed("bigbird-tiny", {"layers[0].pattern[0].mixer.pattern.random_blocks=1"});
  const Device device = Device::cpu(2);
  nn::Model model(named.spec, device, nn::ModelOptions{.dtype = DType::f64});
  scramble(model);
  const std::vector<int64_t> lengths{64, 45, 9};
  const Tensor ids = ids_tensor(random_ids(3 * 64, named.spec.vocab_size), 3, device);
  const Tensor padded = model.logits(ids, {.lengths = lengths});
  for (int64_t row = 0; row < 3; ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    const Tensor alone = model.logits(ids.slice(0, row, 1).slice(1, 0, length).contiguous());
    expect_same_model(model, padded.slice(0, row, 1).slice(1, 0, length), alone, str("row ", row));
  }
}

}  // namespace
}  // namespace lamina::testing
