// Vocabulary-parallel embedding with its all-reduce against a table that one rank holds whole.
#include "lamina/autograd/tape.h"
#include "lamina/nn/parallel_vocab_embedding.h"
#include "parallel/parallel_support.h"

namespace lamina::testing {
namespace {

constexpr int64_t kVocab = 10;
constexpr int64_t kWidth = 3;

/// Whole numbers that bf16 holds exactly.
float cell(int64_t row, int64_t column) { return static_cast<float>(row * 10 + column + 1); }

void check_rank(comm::Communicator& c, DType dtype) {
  const Device device = Device::cpu(1);
  const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
  nn::ParallelVocabEmbedding embedding(kVocab, kWidth, c.rank(), c.size(), device,
                                       {.dtype = dtype, .communicator = own, .pad = true});
  const int64_t rows = (kVocab + c.size() - 1) / c.size();
  ASSERT_EQ(embedding.weight().dim(0), rows);
  std::vector<float> table;
  for (int64_t i = 0; i < rows * kWidth; ++i) table.push_back(cell(embedding.first_row() + i / kWidth, i % kWidth));
  Tensor weight = embedding.weight();
  weight.copy_(Tensor::from(table, {rows, kWidth}, device));
  Tape tape;
  tape.watch(weight);
  const std::vector<int64_t> ids{0, 9, 3, 3, 7, 5, 1, 9};
  const Tensor y = embedding.forward(Tensor::from(ids, {2, 4}, device));
  std::vector<float> expected;
  std::vector<float> seeds;
  for (size_t i = 0; i < ids.size(); ++i) {
    for (int64_t k = 0; k < kWidth; ++k) {
      expected.push_back(cell(ids[i], k));
      seeds.push_back(static_cast<float>(i + 1));
    }
  }
  EXPECT_EQ(y.to(DType::f32).to_vector<float>(), expected) << "rank " << c.rank() << " of " << c.size();
  if (!is_tracked({y})) return;  // a rank that holds padding only
  tape.backward({y}, {Tensor::from(seeds, {2, 4, kWidth}, device).to(dtype)});
  const std::vector<float> gradient = tape.grad(weight).to(DType::f32).to_vector<float>();
  for (int64_t row = 0; row < rows; ++row) {
    float sum = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == embedding.first_row() + row) sum += static_cast<float>(i + 1);
    }
    EXPECT_EQ(gradient[static_cast<size_t>(row * kWidth)], sum) << "row " << embedding.first_row() + row;
  }
}

TEST(ParallelVocabEmbedding, TheSumOverRanksIsTheEmbedding) {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {  // 8 ranks of 2 rows: three hold padding only
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      comm::run_local_ranks(ranks, [&](comm::Communicator& c) { check_rank(c, dtype); });
    }
  }
}

TEST(ParallelVocabEmbedding, RanksMustFit) {
  const Device device = Device::cpu(1);
  EXPECT_THROW(nn::ParallelVocabEmbedding(kVocab, kWidth, 0, 4, device), Error);
  EXPECT_THROW(nn::ParallelVocabEmbedding(kVocab, kWidth, 0, 2, device, {.communicator = comm::single_rank()}), Error);
  nn::ParallelVocabEmbedding embedding(kVocab, kWidth, 3, 4, device, {.pad = true});
  const std::vector<int64_t> outside{10};  // a padding row
  EXPECT_THROW(embedding.forward(Tensor::from(outside, {1, 1}, device)), Error);
}

}  // namespace
}  // namespace lamina::testing
