// Retrieval as an option of an architecture: which layers get it, defaults, parameters and FLOPs.
#include <gtest/gtest.h>

#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/picture.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"

namespace lamina::arch {
namespace {

std::vector<int64_t> cross_layers(const ArchSpec& spec) {
  std::vector<int64_t> numbers;
  int64_t number = 0;
  for (const Block* block : layer_blocks(spec)) {
    ++number;
    if (block->cross) numbers.push_back(number);
  }
  return numbers;
}

TEST(RetrievalSpec, AtNamesLayersAndIsWrittenIntoTheirBlocks) {
  const ArchSpec paper = resolve(load_preset("retro-172m"), "retro-172m");
  EXPECT_EQ(cross_layers(paper), (std::vector<int64_t>{6, 9, 12}));
  EXPECT_FALSE(paper.retrieval->at);
  EXPECT_EQ(layer_count(paper), 12 + 2);
  EXPECT_EQ(cross_layers(resolve(load_preset("retro-7.5b"), "")),
            (std::vector<int64_t>{6, 9, 12, 15, 18, 21, 24, 27, 30}));
}

TEST(RetrievalSpec, DefaultsFollowTheDecoder) {
  const ArchSpec spec = resolve(with_overrides(load_preset("gpt2-tiny"), {"retrieval={\"at\":{}}"}), "");
  const Retrieval& retrieval = *spec.retrieval;
  EXPECT_EQ(retrieval.d_model, spec.d_model);
  EXPECT_TRUE(*retrieval.shared_embedding);
  EXPECT_EQ(std::get<LearnedPosition>(*retrieval.position).length, retrieval.length);
  const std::vector<const Block*> blocks = layer_blocks(retrieval.layers);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_TRUE(blocks[0]->cross && !blocks[1]->cross);
  EXPECT_TRUE(std::holds_alternative<PlainFfn>(blocks[0]->ffn));
  EXPECT_FALSE(*std::get<Attention>(blocks[0]->mixer).causal);
  EXPECT_EQ(layer_blocks(spec)[0]->cross->n_heads, std::get<Attention>(layer_blocks(spec)[0]->mixer).n_heads);
}

/// The paper counts 172, 425, 1451 and 7532 million parameters without embeddings, with a projection of relative
/// positions in every attention. RoPE has none; with these projections the numbers agree.
TEST(RetrievalSpec, ParametersAreThePapers) {
  const std::vector<std::pair<const char*, double>> published = {
      {"retro-172m", 172}, {"retro-425m", 425}, {"retro-1.5b", 1451}, {"retro-7.5b", 7532}};
  for (const auto& [name, millions] : published) {
    const ArchSpec spec = resolve(load_preset(name), name);
    const ParameterCount count = count_parameters(spec);
    int64_t embeddings = count.embedding;
    for (const CountRow& row : count.rows) {
      if (row.where == "retrieval" && row.component == "embedding") embeddings += row.total;
    }
    double positions = 0;  // [heads · head_dim, width] for each attention
    for (const WrittenBlock& written : written_blocks(spec)) {
      const auto& a = std::get<Attention>(written.block->mixer);
      positions += static_cast<double>(written.times * a.n_heads * *a.head_dim * written.d_model);
      if (!written.block->cross) continue;
      const CrossAttention& cross = *written.block->cross;
      positions += static_cast<double>(written.times * cross.n_heads * *cross.head_dim * written.d_model);
    }
    const double ours = (static_cast<double>(count.total - embeddings) + positions) * 1e-6;
    EXPECT_NEAR(ours, millions, 0.002 * millions + 0.5) << name;
  }
}

/// Counted by hand for retro-tiny: m = 4, k = 2, r = 6, so every token has 3 tokens of neighbours.
TEST(RetrievalSpec, FlopsAreThoseOfTheFormula) {
  const ArchSpec spec = resolve(load_preset("retro-tiny"), "");
  const double d = 32, e = 24, length = 16, ratio = 3;
  const double self = d * d + 2 * d * 16 + d * d;  // q, k, v (two of four heads), o
  const double ffn = 3 * d * 56;
  const double chunked = 2 * d * d + ratio * 2 * e * 16;  // q and o of tokens, k and v of neighbours
  const double encoder = ratio * 2 * (4 * e * e + 2 * e * 40) + ratio * 2 * e * e + 2 * d * e;
  const double products = 2 * (3 * (self + ffn) + 2 * chunked + encoder + 96 * d);
  const double scores = 4 * d * (length + 1) / 2 * 3 + 2 * 4 * d * 12 + ratio * (2 * 4 * e * 6 + 4 * e * 4);
  const Flops flops = flops_per_token(spec, 16);
  EXPECT_DOUBLE_EQ(flops.products, products);
  EXPECT_DOUBLE_EQ(flops.mixing, scores);
}

TEST(RetrievalSpec, PictureShowsNeighboursAndBothKindsOfCrossAttention) {
  const std::string picture = draw(resolve(load_preset("retro-tiny"), ""), "retro-tiny");
  for (const char* part :
       {"2 x 6 tokens for each chunk of 4", "chunked cross-attention to neighbours", "cross-attention to the chunk"}) {
    EXPECT_NE(picture.find(part), std::string::npos) << part;
  }
  // A parallel block has cross-attention after its two branches.
  const ArchSpec parallel = resolve(with_overrides(load_preset("falcon-tiny"), {"retrieval={\"at\":{}}"}), "");
  EXPECT_NE(draw(parallel, "").find("chunked cross-attention"), std::string::npos);
}

}  // namespace
}  // namespace lamina::arch
